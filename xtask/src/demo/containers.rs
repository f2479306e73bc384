//! Third act of the demo: three containers on one host, with volumes of three classes. One of them turns noisy, and gets
//! a limit.
//!
//! Where no Docker engine can run, three attached filesystems take the place of the containers. Where nothing can be
//! attached, the act is left out.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_testkit::docker::{self, Engine, IMAGE, PLUGINS};
use weir_testkit::program::{find, path};

use crate::numbers::off_per_cent;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::folder::Folder;
use crate::world::process::Process;

/// A container with its volume.
struct User {
    name: &'static str,
    class: &'static str,
    /// IOPS of the drive of this class.
    drive_iops: u64,
}

const USERS: [User; 3] = [
    User { name: "web", class: "high", drive_iops: 4000 },
    User { name: "database", class: "medium", drive_iops: 2000 },
    User { name: "batch", class: "low", drive_iops: 1000 },
];
/// The user that turns noisy.
const NOISY: usize = 2;
/// IOPS that a calm user asks for: less than any machine delivers.
const CALM_IOPS: u64 = 100;
/// IOPS that the noisy user gets in the end.
const LIMIT_IOPS: u64 = 200;
/// Largest difference between a user's rate and what it asks for, or its limit, in per cent.
const OFF_PER_CENT_MAX: f64 = 3.0;
/// Time for a change to settle before counting begins.
const SETTLE: Duration = Duration::from_secs(2);
/// Time over which each phase is counted.
const COUNT: Duration = Duration::from_secs(6);
/// Longest time until a user has written its file.
const READY_MAX: Duration = Duration::from_secs(120);

/// IOPS of each user in each phase.
pub struct Found {
    calm: [f64; 3],
    noisy: [f64; 3],
    limited: [f64; 3],
    /// What is attached once all have ended.
    left: String,
}

/// Where the users run.
enum Host {
    Containers { engine: Engine, plugin: Process },
    Filesystems,
}

/// Users that run.
struct Running<'a> {
    host: &'a Host,
    folder: &'a Path,
    users: [Option<Child>; 3],
}

/// Runs the act with a daemon of its own, which ends with the act. `None` if nothing can be attached here.
pub fn play(binary: &Path) -> Result<Option<Found>> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("== three containers of three classes: left out, because it needs root and FUSE\n");
        return Ok(None);
    }
    println!("== three containers of three classes, and one of them turns noisy");
    let folder = Folder::in_memory("weir-demo-containers")?;
    let mut daemon = Daemon::start(binary, &folder.path().join("state"), &[])?;
    daemon.be_talkative();
    for User { class, drive_iops, .. } in &USERS {
        let place = folder.path().join(class);
        std::fs::create_dir_all(&place)?;
        daemon.run(&format!(
            "drive add {} --name {class}-drive --emulate iops={drive_iops},latency=200us --class {class} --no-measurement",
            place.display()
        ))?;
    }
    let host = Host::new(binary, folder.path(), &daemon)?;
    for user in &USERS {
        host.create(user, &daemon)?;
    }
    let found = phases(&host, folder.path(), &daemon)?;
    host.end()?;
    daemon.process().stop()?;
    Ok(Some(found))
}

fn phases(host: &Host, folder: &Path, daemon: &Daemon) -> Result<Found> {
    let mut running = Running { host, folder, users: [None, None, None] };
    for number in 0..USERS.len() {
        running.start(number, daemon, &format!("--rate_iops={CALM_IOPS}"))?;
    }
    let calm = rates(daemon)?;
    println!("\n# {} asks for all that its drive has", USERS[NOISY].name);
    running.stop(NOISY, daemon)?;
    running.start(NOISY, daemon, "--iodepth=64")?;
    let noisy = rates(daemon)?;
    println!("\n# it gets a limit, while it runs");
    daemon.run(&format!("policy-group create calm --max-throughput {LIMIT_IOPS}IOPS"))?;
    daemon.run(&format!("volume modify {} --policy-group calm", USERS[NOISY].name))?;
    let limited = rates(daemon)?;
    for number in 0..USERS.len() {
        running.stop(number, daemon)?;
    }
    let found = Found { calm, noisy, limited, left: daemon.json("attachment list")?["items"].to_string() };
    print_rates(&found);
    Ok(found)
}

impl Host {
    fn new(binary: &Path, folder: &Path, daemon: &Daemon) -> Result<Host> {
        let socket = Path::new(PLUGINS).join("weir.sock");
        let has_programs = docker::PROGRAMS.iter().all(|program| find(program).is_some());
        // Another plugin may serve this machine's own engine.
        let is_taken = std::os::unix::net::UnixStream::connect(&socket).is_ok();
        if !has_programs || is_taken {
            println!("# no Docker engine here: attached filesystems take the place of containers");
            return Ok(Host::Filesystems);
        }
        let engine = match Engine::try_start(&folder.join("docker"), &[]) {
            Ok(engine) => engine,
            Err(why) => {
                println!(
                    "# no Docker engine can run here ({why}): attached filesystems take the place of containers"
                );
                return Ok(Host::Filesystems);
            }
        };
        let (server, mounts) = (daemon.server(), folder.join("plugin").display().to_string());
        println!("$ weir docker-plugin --folder {mounts} &");
        let arguments = ["docker-plugin", "--server", &server, "--folder", &mounts].map(str::to_owned);
        let mut plugin = Process::start("plugin", folder, &binary.to_string_lossy(), &arguments)?;
        plugin.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
        Ok(Host::Containers { engine, plugin })
    }

    /// Ends the engine, and the plugin, which removes its socket.
    fn end(self) -> Result<()> {
        let Host::Containers { engine, mut plugin } = self else { return Ok(()) };
        drop(engine);
        plugin.stop()
    }

    fn create(&self, user: &User, daemon: &Daemon) -> Result<()> {
        let User { name, class, .. } = user;
        match self {
            Host::Containers { engine, .. } => {
                let (size, class) = ("size=1GiB".to_owned(), format!("io_priority={class}"));
                shown(engine, &["volume", "create", "-d", "weir", "-o", &size, "-o", &class, name]).map(drop)
            }
            Host::Filesystems => {
                daemon.run(&format!("volume create {name} --size 1GiB --class {class}")).map(drop)
            }
        }
    }
}

impl Running<'_> {
    /// Starts a user, and waits until it reads its volume.
    fn start(&mut self, number: usize, daemon: &Daemon, more: &str) -> Result<()> {
        let name = USERS[number].name;
        let fio = format!(
            "--name={name} --filename=file --size=16M --rw=randread --bs=4k --direct=1 --ioengine=libaio \
             --thread=1 --time_based --runtime=3600 {more}"
        );
        let mut command = match self.host {
            Host::Containers { engine, .. } => {
                let (program, volume) = (path("fio"), format!("{name}:/data"));
                let mut arguments =
                    vec!["run", "--rm", "--name", name, "-v", &volume, IMAGE, &program, "--directory=/data"];
                arguments.extend(fio.split_whitespace());
                println!("$ docker {} &", arguments.join(" "));
                engine.command(&arguments)
            }
            Host::Filesystems => {
                let place = self.place(name);
                daemon.run(&format!("attach {name} --mount {} --fs ext4", place.display()))?;
                println!("$ fio --directory={} {fio} &", place.display());
                let mut command = Command::new(path("fio"));
                command.arg(format!("--directory={}", place.display())).args(fio.split_whitespace());
                command
            }
        };
        let before = reads(daemon, name)?;
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start")?;
        self.users[number] = Some(child);
        self.wait_until_it_reads(number, daemon, before)
    }

    fn wait_until_it_reads(&mut self, number: usize, daemon: &Daemon, before: u64) -> Result<()> {
        let (begun, name) = (Instant::now(), USERS[number].name);
        // The filesystem reads its own blocks too.
        while reads(daemon, name)? < before + CALM_IOPS {
            let child = self.users[number].as_mut().context("it was started")?;
            ensure!(child.try_wait()?.is_none(), "{name} has ended: {}", ended(child));
            ensure!(begun.elapsed() < READY_MAX, "{name} reads nothing");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn stop(&mut self, number: usize, daemon: &Daemon) -> Result<()> {
        let name = USERS[number].name;
        let Some(mut child) = self.users[number].take() else { return Ok(()) };
        match self.host {
            Host::Containers { engine, .. } => {
                shown(engine, &["kill", name])?;
                child.wait()?;
                // The engine unmounts the volume before the container is gone.
                while !engine
                    .run(&["ps", "--all", "--quiet", "--filter", &format!("name={name}")])
                    .stdout
                    .is_empty()
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            Host::Filesystems => {
                child.kill()?;
                child.wait()?;
                daemon.run(&format!("detach {name} --unmount"))?;
            }
        }
        Ok(())
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.join("mounts").join(name)
    }
}

/// Users that an error left behind end with the act, and so do their mounts, while the daemon still serves them.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        for child in self.users.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for user in &USERS {
            let place = self.place(user.name);
            if place.exists() {
                let _ = Command::new("umount").args(["-l", "-q"]).arg(place).status();
            }
        }
    }
}

fn ended(child: &mut Child) -> String {
    let mut words = String::new();
    if let Some(errors) = &mut child.stderr {
        let _ = std::io::Read::read_to_string(errors, &mut words);
    }
    words.trim().to_owned()
}

/// Runs a command of Docker, and prints it.
fn shown(engine: &Engine, arguments: &[&str]) -> Result<String> {
    println!("$ docker {}", arguments.join(" "));
    let output = engine.run(arguments);
    ensure!(output.status.success(), "docker: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads of a volume so far.
fn reads(daemon: &Daemon, volume: &str) -> Result<u64> {
    let volume = daemon.json(&format!("volume show {volume}"))?;
    volume["statistics"]["read"]["operations"].as_u64().context("the daemon counts reads")
}

/// IOPS of all users for a while.
fn rates(daemon: &Daemon) -> Result<[f64; 3]> {
    std::thread::sleep(SETTLE);
    let look = |user: &User| Ok((Instant::now(), reads(daemon, user.name)?));
    let before: Vec<(Instant, u64)> = USERS.iter().map(look).collect::<Result<_>>()?;
    std::thread::sleep(COUNT);
    let after: Vec<(Instant, u64)> = USERS.iter().map(look).collect::<Result<_>>()?;
    Ok(std::array::from_fn(|number| {
        let ((from, first), (to, last)) = (before[number], after[number]);
        (last - first) as f64 / to.duration_since(from).as_secs_f64()
    }))
}

fn print_rates(found: &Found) {
    println!("\nIOPS of each, over {} s:\n", COUNT.as_secs());
    let row = |number: usize| {
        let rates = [found.calm[number], found.noisy[number], found.limited[number]];
        let name = format!("{} ({})", USERS[number].name, USERS[number].class);
        [name].into_iter().chain(rates.map(grouped)).collect()
    };
    print_table(&["container", "calm", "one is noisy", "it has a limit"], (0..USERS.len()).map(row));
}

/// Adds every claim to the report.
pub fn judge(found: &Found, report: &mut Report) {
    let is_near = |rate: f64, wanted: u64| off_per_cent(rate, wanted as f64).abs() <= OFF_PER_CENT_MAX;
    let (web, database) = (found.noisy[0], found.noisy[1]);
    report.claim(
        format!("two containers keep their {CALM_IOPS} IOPS beside a noisy one, within {OFF_PER_CENT_MAX} %"),
        format!("{web:.1} and {database:.1}"),
        is_near(web, CALM_IOPS) && is_near(database, CALM_IOPS),
    );
    let (before, after) = (found.noisy[NOISY], found.limited[NOISY]);
    report.claim(
        format!("the noisy one gets {LIMIT_IOPS} IOPS while it runs, within {OFF_PER_CENT_MAX} %"),
        format!("{after:.1}, before {before:.1}"),
        is_near(after, LIMIT_IOPS),
    );
    report.claim("nothing stays attached".to_owned(), found.left.clone(), found.left == "[]");
    report.row(json!({"calm": found.calm, "noisy": found.noisy, "limited": found.limited}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_can_fail() {
        let failures = |noisy: [f64; 3], limited: f64, left: &str| {
            let found =
                Found { calm: [100.0; 3], noisy, limited: [100.0, 100.0, limited], left: left.to_owned() };
            let mut report = Report::new("test");
            judge(&found, &mut report);
            report.finish(None).err().map_or_else(String::new, |error| error.to_string())
        };
        let kept = [100.0, 99.0, 900.0];
        assert_eq!(failures(kept, 200.5, "[]"), "");
        assert!(failures([100.0, 90.0, 900.0], 200.5, "[]").contains("1 of 3"));
        assert!(failures(kept, 900.0, "[{}]").contains("2 of 3"));
    }
}
