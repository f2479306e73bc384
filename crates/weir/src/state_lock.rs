//! State lock: it keeps a second daemon from a state folder. It knows nothing of what is in the folder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use weir_cli::CommandError;
use weir_store::space::explain;

/// Name of the lock's file.
const FILE: &str = "lock";
/// Width of the process ID in the file, in digits.
const HOLDER_DIGITS: usize = 10;
/// Time for a new process of a killed daemon to let go of the daemon's lock.
const LET_GO_TIME_MAX: Duration = Duration::from_secs(5);
/// Interval of the attempts in this time.
const LET_GO_INTERVAL: Duration = Duration::from_millis(10);

/// Locks the state folder against other daemons, for as long as the returned file is open.
///
/// # Errors
/// If another daemon, or a process that it left behind, has the lock. If the file cannot be used.
pub fn take(state: &Path) -> Result<File, CommandError> {
    take_with(state, |file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive))
}

fn take_with(state: &Path, lock: impl FnMut(&File) -> Result<(), Errno>) -> Result<File, CommandError> {
    let path = state.join(FILE);
    let failed = |error: std::io::Error| {
        CommandError::Failed(format!("cannot lock {}: {}", path.display(), explain(&path, &error)))
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = file.map_err(failed)?;
    match wait_for_lock(&mut file, lock) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(CommandError::Failed(refusal(state, &holder_of(&mut file)))),
        Err(error) => return Err(failed(error.into())),
    }
    // Written in place and with a fixed width, so the write needs no new space.
    let holder = format!("{:<width$}\n", std::process::id(), width = HOLDER_DIGITS);
    let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(holder.as_bytes()));
    if let Err(error) = written {
        tracing::warn!("{} does not say which process holds it: {}", path.display(), explain(&path, &error));
    }
    Ok(file)
}

/// Takes a lock. A killed daemon's lock is held for another moment if a program was just being started: the new
/// process has the file until it runs the program.
fn wait_for_lock(file: &mut File, mut lock: impl FnMut(&File) -> Result<(), Errno>) -> Result<(), Errno> {
    let end = Instant::now() + LET_GO_TIME_MAX;
    loop {
        match lock(file) {
            Err(Errno::WOULDBLOCK) if has_ended(&holder_of(file)) && Instant::now() < end => {
                std::thread::sleep(LET_GO_INTERVAL);
            }
            result => return result,
        }
    }
}

fn refusal(state: &Path, holder: &str) -> String {
    let shown = state.display();
    if has_ended(holder) {
        let lock = state.join(FILE);
        return format!(
            "the weir daemon that used the state folder {shown} (process {holder}) has ended, but another process holds \
             its lock; 'fuser {}' names that process: end it, and start again",
            lock.display()
        );
    }
    format!(
        "another weir daemon (process {holder}) uses the state folder {shown}; \
         stop it, or name another folder with --state"
    )
}

/// Process ID of the daemon that last had a lock, as the lock's file says; empty if it does not.
fn holder_of(file: &mut File) -> String {
    let mut holder = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut holder));
    if read.is_err() {
        return String::new();
    }
    holder.lines().next().unwrap_or_default().trim().to_owned()
}

fn has_ended(process: &str) -> bool {
    let process = process.parse().ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a process that has ended lock a folder.
    fn locked_by_ended_process(state: &Path) {
        let mut daemon = std::process::Command::new("true").spawn().unwrap();
        let process = daemon.id();
        daemon.wait().unwrap();
        std::fs::write(state.join(FILE), format!("{process}\n")).unwrap();
    }

    #[test]
    fn second_daemon_is_refused_the_state_folder() {
        let state = tempfile::tempdir().unwrap();
        let lock = take(state.path()).unwrap();
        let mut attempts = 0;
        let refused = take_with(state.path(), |file| {
            attempts += 1;
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert_eq!(attempts, 1, "a daemon that runs is not waited for");
        drop(lock);
        // Waits in the lock: a program that another test is starting has this file too, until it runs.
        assert!(
            take_with(state.path(), |file| rustix::fs::flock(file, FlockOperation::LockExclusive)).is_ok()
        );
    }

    #[test]
    fn lock_that_outlives_its_daemon_for_a_moment_is_waited_for() {
        let state = tempfile::tempdir().unwrap();
        locked_by_ended_process(state.path());
        let mut attempts = 0;
        let taken = take_with(state.path(), |_| {
            attempts += 1;
            if attempts < 3 { Err(Errno::WOULDBLOCK) } else { Ok(()) }
        });
        assert!(taken.is_ok());
        assert_eq!(attempts, 3);
    }

    #[test]
    fn process_that_keeps_the_lock_of_an_ended_daemon_is_not_called_a_daemon() {
        let state = tempfile::tempdir().unwrap();
        locked_by_ended_process(state.path());
        let holder = holder_of(&mut File::open(state.path().join(FILE)).unwrap());
        let message = refusal(state.path(), &holder);
        assert!(message.contains("has ended") && message.contains("'fuser "), "{message}");
    }
}
