//! Commands: an operator that creates, changes and deletes objects until the daemon dies, and knows which
//! must exist then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::common::daemon::{Daemon, State};
use crate::common::random::Random;

/// Number of names that volumes and policy groups share.
const NAMES: u64 = 6;

/// Volume: its size and its policy group.
type Volume = (u64, Option<String>);

/// Existing objects: volumes with size and policy group, policy groups with their ceiling.
#[derive(Clone, Debug, Default, PartialEq)]
struct Things {
    volumes: BTreeMap<String, Volume>,
    groups: BTreeMap<String, u64>,
}

/// Objects that must exist. There are two possible states if a command was not answered.
#[derive(Clone, Default)]
pub struct Expected {
    answered: Things,
    unanswered: Option<(Things, String)>,
}

impl Expected {
    /// Compares the expected objects with the daemon's lists, and adopts the daemon's state.
    pub fn check(&mut self, daemon: &Daemon, others: &[&str]) {
        let found = Things { volumes: volumes(daemon, others), groups: groups(daemon) };
        let alternative = self.unanswered.take();
        let is_expected =
            found == self.answered || alternative.as_ref().is_some_and(|(things, _)| *things == found);
        assert!(is_expected, "found {found:#?}\nanswered {:#?}\nunanswered {alternative:#?}", self.answered);
        self.answered = found;
    }

    /// Compares the volumes alone: a lost catalogue also loses the groups that bind nothing.
    pub fn check_volumes(&self, daemon: &Daemon, others: &[&str]) {
        assert_eq!(volumes(daemon, others), self.answered.volumes, "the rebuilt catalogue");
    }
}

fn volumes(daemon: &Daemon, others: &[&str]) -> BTreeMap<String, Volume> {
    let list = daemon.json(&["volume", "list"]);
    let describe = |volume: &Value| {
        let name = volume["name"].as_str().unwrap().to_owned();
        assert_eq!(volume["state"], "online", "{volume:#}");
        let policy = volume["qos_policy_group"]["name"].as_str().map(str::to_owned);
        (name, (volume["size_bytes"].as_u64().unwrap(), policy))
    };
    let all = list["items"].as_array().unwrap().iter().map(describe);
    all.filter(|(name, _)| !others.contains(&name.as_str())).collect()
}

fn groups(daemon: &Daemon) -> BTreeMap<String, u64> {
    let list = daemon.json(&["qos", "policy-group", "show"]);
    let describe = |group: &Value| {
        let ceiling = group["limits"]["total"]["iops"].as_u64().unwrap_or(0);
        (group["name"].as_str().unwrap().to_owned(), ceiling)
    };
    list["items"].as_array().unwrap().iter().map(describe).collect()
}

/// Operator thread that runs commands.
pub struct Commands {
    answered: Arc<AtomicU64>,
    thread: JoinHandle<Expected>,
}

impl Commands {
    pub fn start(state: State, expected: Expected, seed: u64) -> Commands {
        let answered = Arc::<AtomicU64>::default();
        let count = Arc::clone(&answered);
        let thread = std::thread::spawn(move || give_until_unanswered(&state, expected, seed, &count));
        Commands { answered, thread }
    }

    /// Returns the number of commands answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for the end of an operator whose daemon was killed.
    pub fn finish(self) -> Expected {
        self.thread.join().unwrap()
    }
}

fn give_until_unanswered(state: &State, mut expected: Expected, seed: u64, count: &AtomicU64) -> Expected {
    let mut random = Random::new(seed);
    loop {
        let (command, after) = next_command(&expected.answered, &mut random);
        let words: Vec<&str> = command.split(' ').collect();
        let ran = state.weir(&words);
        if ran.code != Some(0) {
            // Every command must succeed, so only the crash can have failed it.
            let is_gone = !ran.stderr.contains("refused:") && is_about_connection(&ran.stderr);
            assert!(is_gone, "'{command}' was refused: {}", ran.stderr);
            expected.unanswered = Some((after, command));
            return expected;
        }
        expected.answered = after;
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns true if an error message is about a daemon that is gone.
fn is_about_connection(message: &str) -> bool {
    ["daemon", "connect", "closed", "reset", "send"].iter().any(|word| message.contains(word))
}

/// Chooses a command that must succeed, and returns it with the objects that exist after it.
fn next_command(things: &Things, random: &mut Random) -> (String, Things) {
    let mut after = things.clone();
    let number = random.below(NAMES);
    let (volume, group) = (format!("volume-{number}"), format!("group-{}", random.below(3)));
    let command = match (things.volumes.contains_key(&volume), things.groups.contains_key(&group)) {
        (_, false) => {
            after.groups.insert(group.clone(), 100);
            format!(
                "qos policy-group create {group} --max-throughput 100IOPS --is-shared {}",
                number.is_multiple_of(2)
            )
        }
        (false, true) => create_volume(&mut after, volume, group, random),
        (true, true) => change(&mut after, &volume, &group, random),
    };
    (command, after)
}

fn create_volume(after: &mut Things, volume: String, group: String, random: &mut Random) -> String {
    let gibibytes = 1 + random.below(5);
    let policy = (random.below(2) == 0).then_some(group);
    let bind = policy.as_ref().map(|group| format!(" --qos-policy-group {group}")).unwrap_or_default();
    let command = format!("volume create {volume} --size {gibibytes}GiB{bind}");
    after.volumes.insert(volume, (gibibytes << 30, policy));
    command
}

fn change(after: &mut Things, volume: &str, group: &str, random: &mut Random) -> String {
    let is_bound = after.volumes.values().any(|(_, policy)| policy.as_deref() == Some(group));
    let (size, policy) = after.volumes.get_mut(volume).unwrap();
    match random.below(7) {
        0 | 1 => {
            after.volumes.remove(volume);
            format!("volume delete {volume}")
        }
        2 | 3 => {
            *size = (1 + random.below(5)) << 30;
            format!("volume resize {volume} --size {}GiB --force", *size >> 30)
        }
        4 => {
            *policy = (random.below(2) == 0).then(|| group.to_owned());
            format!("volume modify {volume} --qos-policy-group {}", policy.as_deref().unwrap_or("none"))
        }
        5 if !is_bound => {
            after.groups.remove(group);
            format!("qos policy-group delete {group}")
        }
        _ => {
            let ceiling = 1 + random.below(100_000);
            after.groups.insert(group.to_owned(), ceiling);
            format!("qos policy-group modify {group} --max-throughput {ceiling}IOPS")
        }
    }
}

/// Lists all files and empty folders below a folder, by their path from `root`.
pub fn list_files(root: &Path, folder: &Path, found: &mut Vec<String>) {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    if entries.is_empty() && folder != root {
        found.push(folder.strip_prefix(root).unwrap().display().to_string());
    }
    for path in entries {
        if path.is_dir() {
            list_files(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}
