//! Documents whose commands need a kernel of their own: each command works as it is printed.
//!
//! The guest has no systemd and no sudo. Stand-ins in `stand_ins` take their place.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::guest::commands::run;

const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");
const README: &str = include_str!("../../../../README.md");
const ATTACHING: &str = include_str!("../../../../docs/how-to/attach-with-nbd-client.md");

/// Lines that are not run: they download, build and install, open a root shell, or run the tests. The guest has
/// the programs, the unit and a root shell already. Every other line is run.
const PASSED_OVER: [&str; 13] = [
    "sudo apt-get update",
    "sudo apt-get install --yes build-essential git curl fio",
    "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y",
    ". \"$HOME/.cargo/env\"",
    "make build",
    "sudo install target/release/weir /usr/bin/weir",
    "sudo install --mode=644 packaging/systemd/weir.service /etc/systemd/system/",
    "sudo -i",
    "sudo apt-get install --yes build-essential git curl",
    "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"$HOME/.cargo/env\"",
    "make build && sudo install target/release/weir /usr/bin/weir",
    "make demo     # a noisy neighbour, and the policies that stop it: about five minutes after the build",
    "make test     # every check and test",
];

/// Commands of a reader of [`ATTACHING`] before the block that begins with a line: the page names a volume that
/// it does not make.
const BEFORE: [(&str, &str); 1] =
    [("modprobe nbd", "systemctl enable --now weir && weir volume create data --size 1")];

/// Sentence of a document, and the line after whose block it must be true.
struct Promise {
    line: &'static str,
    sentence: &'static str,
    /// Judges the output of the block, and the guest.
    is_kept: fn(&str) -> Result<bool>,
}

const PROMISES: [Promise; 8] = [
    Promise {
        line: "weir qos explain data",
        sentence: "weir qos explain names the limit, and prints the command that would raise it",
        is_kept: |output| {
            let limit = "held back by the ceiling 500IOPS of shared policy group bronze";
            let command = "weir policy-group modify bronze --max-throughput 1000IOPS,20MB/s";
            Ok(output.contains(limit) && output.contains(command))
        },
    },
    Promise {
        line: "weir snapshot restore data@first",
        sentence: "Weir asks before it restores",
        is_kept: |output| Ok(output.contains("[y/N]")),
    },
    Promise {
        line: "weir volume delete data --with-snapshots --wait",
        sentence: "Weir asks before it deletes the volume",
        is_kept: |output| Ok(output.contains("[y/N]")),
    },
    Promise {
        line: "cat /mnt/data/greeting",
        sentence: "the file says hello",
        is_kept: |output| Ok(output.lines().any(|line| line.trim_end() == "hello")),
    },
    Promise {
        line: "weir drive remove drive1 --wait",
        sentence: "everything is removed",
        is_kept: |_| Ok(!is_mounted("/mnt/data")? && std::fs::read_dir("/srv/drive1")?.next().is_none()),
    },
    Promise {
        line: "sudo weir attach data --mount /mnt/data --fs ext4",
        sentence: "README.md leads to a mounted filesystem",
        is_kept: |_| is_mounted("/mnt/data"),
    },
    Promise {
        line: "sudo weir detach data --unmount",
        sentence: "the filesystem is gone again",
        is_kept: |_| Ok(!is_mounted("/mnt/data")?),
    },
    Promise {
        line: "mount -o ro,noload /dev/nbd1 /mnt/snapshot",
        sentence: "a snapshot is mounted",
        is_kept: |_| is_mounted("/mnt/snapshot"),
    },
];

/// Runs the tutorial, which removes everything at its end, and then `README.md`.
pub fn tutorial_and_readme() -> Result<()> {
    prepare()?;
    blocks_to_run(TUTORIAL).chain(blocks_to_run(README)).try_for_each(|block| run_block(&block))
}

/// Runs the guide that attaches a volume with the kernel's NBD client.
pub fn attaching_with_nbd_client() -> Result<()> {
    prepare()?;
    for block in blocks_to_run(ATTACHING) {
        let before = BEFORE.iter().filter(|(line, _)| block.lines().next() == Some(line));
        before.map(|(_, commands)| *commands).chain([block.as_str()]).try_for_each(run_block)?;
    }
    Ok(())
}

/// Mounts the disks where the documents put data: the root of the guest is in memory.
fn prepare() -> Result<()> {
    for (disk, folder) in [("/dev/vda", "/var/lib"), ("/dev/vdb", "/srv")] {
        run(Command::new("mkfs.ext4").args(["-q", disk]))?;
        std::fs::create_dir_all(folder)?;
        run(Command::new("mount").args(["-t", "ext4", disk, folder]))?;
    }
    std::fs::create_dir_all("/dev/pts")?;
    run(Command::new("mount").args(["-t", "devpts", "devpts", "/dev/pts"]))
}

fn run_block(commands: &str) -> Result<()> {
    println!("{commands}");
    let output = output_at_terminal(commands)?;
    println!("{output}");
    for promise in PROMISES.iter().filter(|promise| commands.lines().any(|line| line == promise.line)) {
        let is_kept = (promise.is_kept)(&output)?;
        ensure!(is_kept, "not so: {}; the block '{commands}' printed '{output}'", promise.sentence);
    }
    Ok(())
}

/// Runs commands at a terminal, and answers a question with `y`. Returns what the terminal shows.
fn output_at_terminal(commands: &str) -> Result<String> {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command"]).arg(format!("set -e -x\n{commands}")).arg("/dev/null");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run script")?;
    let mut stdin = child.stdin.take().context("it is a pipe")?;
    std::io::Write::write_all(&mut stdin, b"y\n")?;
    let ended = child.wait_with_output()?;
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    if !ended.status.success() {
        let log = std::fs::read_to_string("/run/weir.stderr").unwrap_or_default();
        println!("{log}");
        bail!("{}: the block '{commands}' printed '{output}'", ended.status);
    }
    Ok(output)
}

fn is_mounted(folder: &str) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(folder)))
}

/// Returns the blocks of shell commands of a document.
fn blocks(document: &str) -> impl Iterator<Item = &str> {
    document.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next())
}

/// Returns the blocks that are run, without the lines that are passed over.
fn blocks_to_run(document: &str) -> impl Iterator<Item = String> {
    let is_run = |line: &&str| !PASSED_OVER.contains(line);
    let remaining = move |block: &str| block.lines().filter(is_run).collect::<Vec<_>>().join("\n");
    blocks(document).map(remaining).filter(|block| !block.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_line_is_in_a_document() {
        let all = blocks(TUTORIAL).chain(blocks(README)).chain(blocks(ATTACHING));
        let lines: Vec<&str> = all.flat_map(str::lines).collect();
        let listed = PASSED_OVER.into_iter().chain(PROMISES.map(|promise| promise.line));
        for line in listed.chain(BEFORE.map(|(line, _)| line)) {
            assert!(lines.contains(&line), "no document has the line '{line}'");
        }
    }

    #[test]
    fn only_listed_lines_are_passed_over() {
        let text =
            "a\n```sh\nmake build\nmake builds\nweir status\n```\n```toml\nb\n```\n```sh\nsudo -i\n```\n";
        assert_eq!(blocks_to_run(text).collect::<Vec<_>>(), ["make builds\nweir status"]);
    }
}
