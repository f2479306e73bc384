//! Peers: other servers of the same file, which are measured beside Weir in the same run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weir_testkit::cgroup::{self, Cgroup};

use super::fio::Target;
use super::process::Process;

/// Peer that serves a file on a Unix socket.
pub struct Peer {
    process: Process,
    socket: PathBuf,
}

impl Peer {
    /// Starts nbdkit's file plugin. On a disk it avoids the page cache as far as it can.
    pub fn nbdkit(folder: &Path, file: &Path, is_disk: bool) -> Result<Peer> {
        let socket = folder.join("nbdkit.sock");
        let mut arguments = words(&["-f", "-U", &text(&socket), "file", &text(file)]);
        if is_disk {
            arguments.push("cache=none".to_owned());
        }
        Peer::start("nbdkit", folder, "nbdkit", &arguments, socket)
    }

    /// Starts nbdkit's rate filter before its file plugin.
    pub fn nbdkit_rate(folder: &Path, name: &str, file: &Path, bytes_per_second: u64) -> Result<Peer> {
        let socket = folder.join(format!("{name}.sock"));
        let rate = format!("rate={}", bytes_per_second * 8);
        let arguments = words(&["-f", "-U", &text(&socket), "--filter=rate", "file", &text(file), &rate]);
        Peer::start(name, folder, "nbdkit", &arguments, socket)
    }

    /// Starts qemu-nbd with io_uring, without the page cache.
    pub fn qemu_nbd(folder: &Path, name: &str, file: &Path) -> Result<Peer> {
        let socket = folder.join(format!("{name}.sock"));
        let fixed = "--persistent --shared=0 --format=raw --cache=none --aio=io_uring --socket";
        let mut arguments: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        arguments.extend([text(&socket), text(file)]);
        Peer::start(name, folder, "qemu-nbd", &arguments, socket)
    }

    /// Starts QEMU's throttle group before the same file access. `limit` is a property of the group, for
    /// example `x-iops-total=1000`.
    pub fn qemu_throttle(folder: &Path, name: &str, file: &Path, limit: &str) -> Result<Peer> {
        let socket = folder.join(format!("{name}.sock"));
        let file = format!("driver=file,node-name=file,filename={},cache.direct=on,aio=io_uring", text(file));
        let arguments = words(&[
            "--object",
            &format!("throttle-group,id=group,{limit}"),
            "--blockdev",
            &file,
            "--blockdev",
            "driver=throttle,node-name=throttle,throttle-group=group,file=file",
            "--nbd-server",
            &format!("addr.type=unix,addr.path={}", text(&socket)),
            "--export",
            "type=nbd,id=export,node-name=throttle,name=,writable=on",
        ]);
        Peer::start(name, folder, "qemu-storage-daemon", &arguments, socket)
    }

    fn start(
        name: &str,
        folder: &Path,
        program: &str,
        arguments: &[String],
        socket: PathBuf,
    ) -> Result<Peer> {
        let mut process = Process::start(name, folder, program, arguments)?;
        process.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
        Ok(Peer { process, socket })
    }

    /// Returns the target for a client's load.
    pub fn target(&self) -> Target {
        Target::Nbd { socket: self.socket.clone(), export: String::new() }
    }

    /// Returns the process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Control group (version 1) for reads and writes of a disk, with a limit or a weight. It is removed when
/// dropped.
pub struct BlockGroup {
    cgroup: Cgroup,
}

impl BlockGroup {
    /// Returns true if the machine has this controller and it can limit.
    pub fn is_available() -> bool {
        let hierarchy = cgroup::hierarchy().ok().flatten();
        hierarchy.is_some_and(|place| place.join("blkio.throttle.read_iops_device").exists())
    }

    /// Creates a group with a limit. `unit` is `iops` or `bps`, `disk` is `MAJOR:MINOR`.
    pub fn new(name: &str, disk: &str, unit: &str, rate: u64) -> Result<BlockGroup> {
        let group = BlockGroup::blank(name)?;
        for direction in ["read", "write"] {
            let file = group.cgroup.folder().join(format!("blkio.throttle.{direction}_{unit}_device"));
            std::fs::write(&file, format!("{disk} {rate}")).context("cannot set a limit")?;
        }
        Ok(group)
    }

    /// Creates a group with a weight under BFQ. The weight exists only once a device uses BFQ.
    pub fn weighted(name: &str, weight: u32) -> Result<BlockGroup> {
        let group = BlockGroup::blank(name)?;
        let file = group.cgroup.folder().join("blkio.bfq.weight");
        std::fs::write(&file, weight.to_string()).context("cannot set blkio.bfq.weight")?;
        Ok(group)
    }

    fn blank(name: &str) -> Result<BlockGroup> {
        let cgroup = Cgroup::create(&format!("weir-{name}")).context("cannot create a control group")?;
        Ok(BlockGroup { cgroup })
    }

    /// Returns the cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Returns a file as a target from within the group.
    pub fn target(&self, file: &Path) -> Target {
        Target::FileInGroup { file: file.to_owned(), group: self.cgroup.folder().to_owned() }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
