//! Power cut: the daemon's promises hold for the data that a power cut leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guest::client::Client;
use crate::guest::commands::run;
use crate::guest::inside::{self, DRIVE};
use crate::guest::recording::{Instant, Recorder};
use crate::world::daemon::Daemon;

/// State folder, on the disk whose power is cut.
const STATE: &str = "/mnt/drive/weir";
const BLOCK_BYTES: usize = 4096;
/// Used blocks of each volume, and the distance between two of them. Most blocks lie in different pieces, at
/// different offsets of their piece.
const BLOCKS: usize = 24;
const STRIDE_BYTES: u64 = 129 * BLOCK_BYTES as u64;
/// Power is cut at each mark, and at each flush whose number is divisible by this value.
const INSTANTS_BETWEEN_CUTS: usize = 40;
/// Volumes of each kind: on one drive, with replicas, and with replicas behind journals.
const VOLUMES: [(&str, &str); 3] = [
    ("single", "--drive default"),
    ("mirrored", "--io-priority low --repl 2"),
    ("hybrid", "--template hybrid"),
];
/// Drives and their classes, all on the disk whose power is cut.
const DRIVES: [(&str, &str); 3] = [("fast", "high"), ("slow1", "low"), ("slow2", "low")];
const CONFIGURATION: &str = "[storage]\njournal_size = \"64MiB\"\n";

/// Contents of an export: the byte that fills each block.
type Content = [u8; BLOCKS];
/// Promised contents, by export name.
type Promised = BTreeMap<String, Content>;

/// Checks a filesystem on which snapshots and their volume have shared extents.
pub fn xfs() -> Result<()> {
    check(&["mkfs.xfs", "-q"], "xfs")
}

/// Checks a filesystem without shared extents, where a snapshot duplicates the data.
pub fn ext4() -> Result<()> {
    check(&["mkfs.ext4", "-q"], "ext4")
}

fn check(mkfs: &[&str], kind: &str) -> Result<()> {
    let recorder = Recorder::start(mkfs)?;
    mount(&recorder.path(), kind)?;
    let promised = History::new(&recorder)?.make()?;
    unmount()?;
    let mut recording = recorder.end()?;
    let (mut past, mut instants, mut cuts) = (None, 0, 0);
    while let Some(instant) = recording.play()? {
        instants += 1;
        let is_mark = instant != Instant::Flush;
        if let Instant::Mark(number) = instant {
            past = Some(number);
        }
        let Some(past) = past.filter(|_| is_mark || instants % INSTANTS_BETWEEN_CUTS == 0) else { continue };
        // At a mark the contents are certain. Later a part of the next step may be present.
        let next = promised.get(if is_mark { past } else { past + 1 }).unwrap_or(&promised[past]);
        let cut = recording.cut_power()?;
        mount(&cut.path(), kind)?;
        compare(&promised[past], next)
            .with_context(|| format!("power cut {cuts}, after step {past}: {instant:?}"))?;
        unmount()?;
        cut.end()?;
        cuts += 1;
    }
    println!("{instants} marks and flushes, {cuts} power cuts");
    ensure!(cuts >= promised.len(), "power was cut {cuts} times, and {} times was promised", promised.len());
    Ok(())
}

/// Checks that each block has its contents from before or after the current step.
fn compare(past: &Promised, next: &Promised) -> Result<()> {
    let daemon = start()?;
    let names: BTreeSet<_> = past.keys().chain(next.keys()).collect();
    for name in names {
        let allowed: Vec<&Content> = [past.get(name), next.get(name)].into_iter().flatten().collect();
        let is_certain = allowed.len() == 2;
        let client = attach(name);
        if client.is_err() && !is_certain {
            continue;
        }
        let content = read(&mut client.with_context(|| format!("{name} is not there"))?)?;
        for (block, byte) in content.iter().enumerate() {
            ensure!(
                allowed.iter().any(|content| content[block] == *byte),
                "block {block} of {name} holds {byte}, and {:?} were promised",
                allowed.iter().map(|content| content[block]).collect::<Vec<_>>()
            );
        }
    }
    inside::kill(daemon);
    Ok(())
}

/// Steps that run while the disk is recorded.
struct History<'a> {
    recorder: &'a Recorder,
    daemon: Daemon,
    now: Promised,
    promised: Vec<Promised>,
}

impl<'a> History<'a> {
    fn new(recorder: &'a Recorder) -> Result<History<'a>> {
        let daemon = start()?;
        for (name, class) in DRIVES {
            let folder = Path::new(DRIVE).join(name);
            std::fs::create_dir(&folder)?;
            daemon.run(&format!("drive add {} --class {class} --no-measurement", folder.display()))?;
        }
        Ok(History { recorder, daemon, now: Promised::new(), promised: Vec::new() })
    }

    /// Runs all steps. Returns the promised contents at each mark.
    fn make(mut self) -> Result<Vec<Promised>> {
        for (name, options) in VOLUMES {
            self.daemon.run(&format!("volume create {name} --size 1 {options}"))?;
            self.now.insert(name.to_owned(), [0; BLOCKS]);
        }
        self.mark()?;
        self.write(|client, block| client.write(place(block), &[1; BLOCK_BYTES]).map(|()| Some(1)))?;
        self.mark()?;
        self.write(|client, block| match block % 4 {
            0 | 2 => client.write(place(block), &[2; BLOCK_BYTES]).map(|()| Some(2)),
            1 => client.write_zeroes(place(block), BLOCK_BYTES).map(|()| Some(0)),
            _ => Ok(None),
        })?;
        self.mark()?;
        self.force(3)?;
        self.mark()?;
        self.snapshot()?;
        self.mark()?;
        self.write(|client, block| client.write(place(block), &[4; BLOCK_BYTES]).map(|()| Some(4)))?;
        self.mark()?;
        self.clone_and_delete()?;
        self.mark()?;
        inside::kill(self.daemon);
        Ok(self.promised)
    }

    /// Marks the current contents as promised.
    fn mark(&mut self) -> Result<()> {
        self.recorder.mark(self.promised.len())?;
        self.promised.push(self.now.clone());
        Ok(())
    }

    /// Changes blocks of all volumes, and flushes.
    fn write(&mut self, mut change: impl FnMut(&mut Client, usize) -> Result<Option<u8>>) -> Result<()> {
        for (name, _) in VOLUMES {
            let mut client = attach(name)?;
            for block in 0..BLOCKS {
                if let Some(byte) = change(&mut client, block)? {
                    self.content(name)[block] = byte;
                }
            }
            client.flush()?;
        }
        Ok(())
    }

    /// Writes blocks with FUA.
    fn force(&mut self, byte: u8) -> Result<()> {
        for (name, _) in VOLUMES {
            let mut client = attach(name)?;
            for block in (0..BLOCKS).step_by(3) {
                client.write_stable(place(block), &[byte; BLOCK_BYTES])?;
                self.content(name)[block] = byte;
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        for (name, _) in VOLUMES {
            let snapshot = format!("{name}@then");
            self.daemon.run(&format!("snapshot create {snapshot}"))?;
            let content = *self.content(name);
            self.now.insert(snapshot, content);
        }
        Ok(())
    }

    fn clone_and_delete(&mut self) -> Result<()> {
        self.daemon.run("volume clone single@then twin")?;
        let content = self.now["single@then"];
        self.now.insert("twin".to_owned(), content);
        self.daemon.run("snapshot delete hybrid@then")?;
        self.now.remove("hybrid@then");
        self.daemon.run("snapshot delete mirrored@then")?;
        self.now.remove("mirrored@then");
        self.daemon.run("volume delete mirrored --yes")?;
        self.now.remove("mirrored");
        Ok(())
    }

    fn content(&mut self, name: &str) -> &mut Content {
        self.now.get_mut(name).expect("volumes are made first")
    }
}

fn place(block: usize) -> u64 {
    block as u64 * STRIDE_BYTES
}

fn read(client: &mut Client) -> Result<Content> {
    let mut content = [0; BLOCKS];
    for (block, byte) in content.iter_mut().enumerate() {
        let bytes = client.read(place(block), BLOCK_BYTES)?;
        *byte = bytes[0];
        ensure!(bytes.iter().all(|other| other == byte), "block {block} is torn");
    }
    Ok(content)
}

fn start() -> Result<Daemon> {
    let configuration = Path::new("/tmp/weir.toml");
    std::fs::write(configuration, CONFIGURATION)?;
    inside::start_on(Path::new(STATE), &["--config", &configuration.to_string_lossy()])
}

fn attach(name: &str) -> Result<Client> {
    Client::attach(&Path::new(STATE).join("nbd.sock"), name)
}

fn mount(device: &Path, kind: &str) -> Result<()> {
    std::fs::create_dir_all(DRIVE)?;
    run(Command::new("mount").args(["-t", kind]).arg(device).arg(DRIVE))
}

/// Unmounts the filesystem. The kernel may hold files of a daemon for a moment after its end.
fn unmount() -> Result<()> {
    let unmount = || Ok(run(Command::new("umount").arg(DRIVE)).is_ok());
    inside::wait_until("nobody uses the filesystem", unmount)
}
