//! Callers: who has a volume mounted. They are a set for each volume, in files, and never a count: Docker repeats
//! calls, and forgets some.
//!
//! A caller stays until no container has the volume and either Docker has unmounted for it, or its engine has ended.
//! Docker unmounts for a running container too, after `docker cp`; and with live restore, containers outlive their
//! engine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The line of a caller's file if Docker has unmounted for it.
const LEFT: &str = "left";
/// Most bytes of a caller's name.
const ID_BYTES_MAX: usize = 200;

/// A Docker engine: a process that asks for mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its number.
    pub process: u32,
    /// When it began, in clock ticks since the host did: process numbers are used again.
    pub start_ticks: u64,
}

impl Engine {
    /// The engine that is this process; `None` if there is no such process.
    pub fn of(process: u32) -> Option<Engine> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some(Engine { process, start_ticks: start_ticks_in(&text)? })
    }

    /// True if it runs.
    pub fn is_alive(self) -> bool {
        Engine::of(self.process) == Some(self)
    }
}

/// Field 22 of `/proc/PID/stat` (proc_pid_stat(5)). The name in field 2 may have spaces and brackets.
fn start_ticks_in(text: &str) -> Option<u64> {
    let behind_name = text.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// A caller of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its name, by Docker.
    pub id: String,
    /// Its engine; `None` if that is not known, as of an engine in another PID namespace.
    pub engine: Option<Engine>,
    /// Whether Docker has unmounted for it.
    pub has_left: bool,
}

/// The stale ones among the callers of a volume. `is_alive` tells of an engine whether it runs, and `is_used` whether
/// any container has the volume.
pub fn stale(callers: &[Caller], is_alive: impl Fn(Engine) -> bool, is_used: bool) -> Vec<&Caller> {
    let has_ended = |caller: &&Caller| caller.has_left || !caller.engine.is_none_or(&is_alive);
    callers.iter().filter(|_| !is_used).filter(has_ended).collect()
}

/// The callers of all volumes, as files in a folder.
#[derive(Debug)]
pub struct Callers {
    folder: PathBuf,
}

impl Callers {
    /// The callers in a folder.
    pub fn new(folder: PathBuf) -> Callers {
        Callers { folder }
    }

    fn folder_of(&self, volume: &str) -> PathBuf {
        self.folder.join(volume)
    }

    /// Names of the volumes that may have callers.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn volumes(&self) -> io::Result<Vec<String>> {
        names_in(&self.folder)
    }

    /// The callers of a volume.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn of(&self, volume: &str) -> io::Result<Vec<Caller>> {
        let folder = self.folder_of(volume);
        let read = |id: String| {
            let text = fs::read_to_string(folder.join(&id)).unwrap_or_default();
            let engine = text.lines().next().and_then(engine_in);
            Caller { id, engine, has_left: text.lines().any(|line| line == LEFT) }
        };
        Ok(names_in(&folder)?.into_iter().map(read).collect())
    }

    /// Writes a caller, instead of what was there of it.
    ///
    /// # Errors
    /// If its name is none, or it cannot be written.
    pub fn put(&self, volume: &str, caller: &Caller) -> io::Result<()> {
        let folder = self.folder_of(volume);
        fs::create_dir_all(&folder)?;
        let engine = caller.engine.map(|engine| format!("{} {}", engine.process, engine.start_ticks));
        let left = if caller.has_left { LEFT } else { "" };
        let file = folder.join(checked(&caller.id)?);
        // A plugin that is killed here leaves the old file or the new one.
        let new = file.with_extension("new");
        fs::write(&new, format!("{}\n{left}\n", engine.unwrap_or_default()))?;
        fs::rename(new, file)
    }

    /// Removes a caller. One that is not there is no error.
    ///
    /// # Errors
    /// If its name is none, or it cannot be removed.
    pub fn remove(&self, volume: &str, id: &str) -> io::Result<()> {
        let folder = self.folder_of(volume);
        match fs::remove_file(folder.join(checked(id)?)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The folder goes with the last caller.
        let _ = fs::remove_dir(folder);
        Ok(())
    }
}

/// A caller's name, if it can be a file's.
fn checked(id: &str) -> io::Result<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(is_plain);
    is_name.then_some(id).ok_or_else(|| io::Error::other(format!("'{id}' is not the ID of a caller")))
}

fn engine_in(text: &str) -> Option<Engine> {
    let (process, start_ticks) = text.trim().split_once(' ')?;
    Some(Engine { process: process.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.retain(|name| !name.ends_with(".new"));
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(id: &str, process: u32) -> Caller {
        Caller { id: id.to_owned(), engine: Some(Engine { process, start_ticks: 7 }), has_left: false }
    }

    #[test]
    fn caller_is_kept_once_and_removed_once() {
        let folder = tempfile::tempdir().unwrap();
        let callers = Callers::new(folder.path().join("callers"));
        assert!(callers.volumes().unwrap().is_empty() && callers.of("vol").unwrap().is_empty());
        for _ in 0..2 {
            callers.put("vol", &caller("a1", 5)).unwrap();
        }
        let unknown = Caller { id: "b2".to_owned(), engine: None, has_left: true };
        callers.put("vol", &unknown).unwrap();
        assert_eq!(callers.of("vol").unwrap(), [caller("a1", 5), unknown]);
        for id in ["a1", "a1", "b2", "never"] {
            callers.remove("vol", id).unwrap();
        }
        assert!(callers.volumes().unwrap().is_empty());
        for id in ["", "../x", "a/b", "."] {
            assert!(callers.put("vol", &caller(id, 5)).is_err() && callers.remove("vol", id).is_err());
        }
    }

    #[test]
    fn caller_is_stale_once_it_or_its_engine_has_ended_and_no_container_has_the_volume() {
        let left = Caller { has_left: true, ..caller("left", 6) };
        let unknown = Caller { engine: None, ..caller("unknown", 0) };
        let callers = [caller("old", 5), caller("new", 6), left, unknown];
        let is_alive = |engine: Engine| engine.process == 6;
        let stale_ids = |is_used| -> Vec<&str> {
            stale(&callers, is_alive, is_used).into_iter().map(|caller| caller.id.as_str()).collect()
        };
        assert_eq!(stale_ids(false), ["old", "left"]);
        assert!(stale_ids(true).is_empty(), "a container has it");
    }

    #[test]
    fn engine_is_known_by_its_start() {
        let own = Engine::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!Engine { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        assert_eq!(Engine::of(u32::MAX), None);
        let text = "5 (a) b) S 1 5 5 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 4711 9 9";
        assert_eq!(start_ticks_in(text), Some(4711));
    }
}
