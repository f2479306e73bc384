//! Volumes as block devices of this kernel, by the drivers that the host of the tests may not have.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::commands::{output_of, run};
use crate::guest::inside::{self, Disk};
use crate::world::attach_cost::{Length, measure_all};
use crate::world::daemon::Daemon;

/// How often the daemon is killed under load, unless the variable of this name says otherwise.
const KILLS: (&str, u64) = ("weir_attach_kills", 1);
/// After how many kills the daemon stops in order once; it does so after the last one too.
const KILLS_PER_STOP: u64 = 5;
/// Syncs after each of which data must be stable: more than the kernel makes by itself in this time.
const SYNCS: u64 = 50;
/// Bytes that the load writes for each kill.
const BYTES_PER_KILL: u64 = 12 << 20;
/// Where the filesystem of the volume is mounted.
const POINT: &str = "/mnt/vol1";
/// Words of the kernel's log that tell of I/O that was not waited for.
const COMPLAINTS: [&str; 5] =
    ["I/O error", "timed out", "blocked for more than", "Remounting", "EXT4-fs error"];
/// How long a volume is held back at least, in seconds, unless the variable of this name says otherwise.
const HELD_BACK: (&str, u64) = ("weir_attach_seconds", 10);
/// Most bytes that wait in the page cache while a volume is held back to a megabyte per second.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// Checks the kernel's NBD client.
pub fn nbd() -> Result<()> {
    check("nbd")
}

/// Checks the kernel's ublk driver.
pub fn ublk() -> Result<()> {
    check("ublk")
}

/// Checks a loop device on a FUSE mount.
pub fn fuse() -> Result<()> {
    check("fuse")
}

/// Measures what attaching costs by each method, beside other ways to make a file of a volume.
pub fn bench() -> Result<()> {
    std::fs::create_dir_all("/dev/shm")?;
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/dev/shm"]))?;
    measure_all(Path::new(inside::DAEMON), &Length::IN_GUEST).map(drop)
}

fn check(method: &str) -> Result<()> {
    inside::mount_ext4(&Disk::mapped("drive", "vda")?)?;
    let mut daemon = inside::start()?;
    daemon.run("drive add /mnt/drive --no-measurement")?;
    daemon.run("volume create vol1 --size 192MiB --drive drive")?;
    let link = daemon.run(&format!("attach vol1 --method {method}"))?.trim().to_owned();
    run(Command::new("mkfs.ext4").args(["-q", &link]))?;
    mount(&link)?;
    flushes_reach_the_drive()?;
    daemon = killed_under_load(daemon)?;
    detach_is_refused(&daemon)?;
    daemon.run("volume resize vol1 --size 256MiB")?;
    if method == "ublk" {
        // This kernel gives such a device its size once.
        attach_again(&daemon, method, &link)?;
    }
    has_grown(&link)?;
    gives_space_back(&daemon)?;
    daemon = held_back(daemon)?;
    run(Command::new("umount").arg(POINT))?;
    run(Command::new("fsck.ext4").args(["-f", "-n", &link]))?;
    daemon.run("detach vol1")?;
    ensure!(!Path::new(&link).exists(), "{link} is gone");
    let log = inside::printed("dmesg", &[])?;
    let complaint = log.lines().find(|line| COMPLAINTS.iter().any(|words| line.contains(words)));
    ensure!(complaint.is_none(), "the kernel complains: {}", complaint.unwrap_or_default());
    daemon.process().stop()
}

/// A number from the variable of this name, or this one.
fn setting((name, default): (&str, u64)) -> Result<u64> {
    Ok(std::env::var(name).ok().map_or(Ok(default), |text| text.parse())?)
}

fn mount(link: &str) -> Result<()> {
    std::fs::create_dir_all(POINT)?;
    run(Command::new("mount").args(["-t", "ext4", link, POINT]))
}

/// What a program makes stable on the filesystem is stable on the drive below: a device that does not tell of its cache
/// gets no flush at all.
fn flushes_reach_the_drive() -> Result<()> {
    let before = inside::flushes("vda")?;
    let mut file = File::create(format!("{POINT}/stable"))?;
    for _ in 0..SYNCS {
        file.write_all(&[7; 4096])?;
        file.sync_all()?;
    }
    let flushes = inside::flushes("vda")? - before;
    ensure!(flushes >= SYNCS, "{SYNCS} syncs were {flushes} flushes of the drive");
    Ok(())
}

/// A load that verifies what it reads back sees nothing of daemons that are killed.
fn killed_under_load(mut daemon: Daemon) -> Result<Daemon> {
    let kills = setting(KILLS)?;
    let stops = kills.div_ceil(KILLS_PER_STOP);
    let mut load = start_load((kills + stops) * BYTES_PER_KILL)?;
    for number in 1..=kills {
        serves(&daemon, &mut load)?;
        inside::kill(daemon);
        daemon = inside::start()?;
        if number % KILLS_PER_STOP == 0 || number == kills {
            serves(&daemon, &mut load)?;
            // It has requests under way too.
            daemon.process().stop()?;
            daemon = inside::start()?;
        }
    }
    let status = load.wait()?;
    ensure!(status.success(), "fio: {status}");
    Ok(daemon)
}

/// Waits until the daemon serves the load.
fn serves(daemon: &Daemon, load: &mut Child) -> Result<()> {
    let begun = written(daemon)?;
    inside::wait_until("the daemon serves the load", || {
        Ok(written(daemon)? > begun + 20 || load.try_wait()?.is_some())
    })
}

fn written(daemon: &Daemon) -> Result<u64> {
    let volume = daemon.json("volume inspect vol1")?;
    volume["statistics"]["write"]["operations"].as_u64().context("the daemon counts writes")
}

fn start_load(bytes: u64) -> Result<Child> {
    let mut command = Command::new("fio");
    command.args(["--name=load", "--size=24M", "--rw=randwrite", "--bsrange=512-64k", "--direct=1"]);
    command.args(["--ioengine=libaio", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--fsync=64"]);
    command.args([&format!("--io_size={bytes}"), "--verify_state_save=0", &format!("--directory={POINT}")]);
    command.stdout(Stdio::null()).spawn().context("cannot run fio")
}

fn detach_is_refused(daemon: &Daemon) -> Result<()> {
    let refused = format!("{:#}", daemon.run("detach vol1").err().context("the volume is in use")?);
    ensure!(refused.contains("is in use") && refused.contains(POINT), "{refused}");
    Ok(())
}

/// The filesystem sees that its volume has grown.
fn has_grown(link: &str) -> Result<()> {
    let size = output_of(Command::new("blockdev").args(["--getsize64", link]))?;
    ensure!(size.trim() == (256 << 20).to_string(), "the device has {size} bytes");
    run(Command::new("resize2fs").arg(link))?;
    let found = rustix::fs::statvfs(POINT)?;
    ensure!(found.f_blocks * found.f_frsize > 200 << 20, "the filesystem has {} blocks", found.f_blocks);
    // What is behind the earlier end is written too.
    std::fs::write(format!("{POINT}/large"), vec![5; 150 << 20])?;
    run(Command::new("sync").args(["-f", POINT]))
}

fn attach_again(daemon: &Daemon, method: &str, link: &str) -> Result<()> {
    run(Command::new("umount").arg(POINT))?;
    daemon.run("detach vol1")?;
    daemon.run(&format!("attach vol1 --method {method}"))?;
    mount(link)
}

/// Deleted files are no longer a part of what the volume uses.
fn gives_space_back(daemon: &Daemon) -> Result<()> {
    let used = || -> Result<u64> {
        daemon.json("volume show vol1")?["used_bytes"].as_u64().context("the daemon counts used bytes")
    };
    ensure!(used()? > 150 << 20, "{} bytes are used", used()?);
    std::fs::remove_file(format!("{POINT}/large"))?;
    run(Command::new("sync").args(["-f", POINT]))?;
    run(Command::new("fstrim").arg(POINT))?;
    inside::wait_until("the space is free", || Ok(used()? < 100 << 20))
}

/// A volume that is held back for long gets its data in the end, and nobody gives up. A daemon that ends meanwhile leaves
/// what it holds back to the next one.
fn held_back(mut daemon: Daemon) -> Result<Daemon> {
    daemon.run("policy-group create slow --max-throughput 1MB/s")?;
    daemon.run("volume modify vol1 --qos-policy-group slow")?;
    let begun = Instant::now();
    let seconds = setting(HELD_BACK)?;
    let bytes = (seconds << 20).min(WAITING_BYTES_MAX);
    let mut writing = write_slowly(bytes);
    inside::wait_until("requests are held back", || Ok(delayed(&daemon)? > 0))?;
    daemon.process().stop()?;
    daemon = inside::start()?;
    let mut data = written_slowly(writing)?;
    while begun.elapsed() < Duration::from_secs(seconds) {
        writing = write_slowly(bytes);
        data = written_slowly(writing)?;
    }
    println!("held back for {} s", begun.elapsed().as_secs());
    daemon.run("volume modify vol1 --qos-policy-group none")?;
    inside::forget_pages()?;
    ensure!(std::fs::read(format!("{POINT}/slow"))? == data, "data that was held back is whole");
    Ok(daemon)
}

/// Writes a file through the page cache, and synchronises it. Returns its content.
fn write_slowly(bytes: u64) -> JoinHandle<Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let data: Vec<u8> = (0..bytes).map(|at| (at / 4096) as u8).collect();
        std::fs::write(format!("{POINT}/slow"), &data)?;
        run(Command::new("sync").args(["-f", POINT]))?;
        Ok(data)
    })
}

fn written_slowly(writing: JoinHandle<Result<Vec<u8>>>) -> Result<Vec<u8>> {
    writing.join().expect("the thread only writes")
}

fn delayed(daemon: &Daemon) -> Result<u64> {
    let volume = daemon.json("volume inspect vol1")?;
    volume["statistics"]["queue_depth_delayed"].as_u64().context("the daemon counts what it holds back")
}
