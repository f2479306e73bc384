//! Freezing: a mounted filesystem writes all that it has, and then nothing, until it is thawed.
//!
//! A filesystem that stays frozen holds up everyone who writes to it. So a process of its own thaws it (the guard): once
//! it is told, when the longest time is over, and when whoever froze it has gone.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::AttachError;

/// The guard, a program of the shell: `$0` is the longest time in seconds, and the arguments are the places. It freezes
/// them in order, and says so or why it cannot. It thaws exactly those that it froze. No signal ends it before, nor that
/// nobody listens to it any more. Its status is not zero if it was the time that ended.
const GUARD: &str = r#"
trap '' HUP INT TERM PIPE
count=0
for place; do
    if words=$(fsfreeze --freeze "$place" 2>&1); then count=$((count + 1)); else break; fi
done
if [ "$count" = "$#" ]; then
    echo frozen
    timeout --signal=KILL "$0" cat > /dev/null
    ended=$?
else
    echo "$words"
    ended=1
fi
for place; do
    [ "$count" -gt 0 ] || break
    count=$((count - 1))
    fsfreeze --unfreeze "$place"
done
exit "$ended"
"#;
/// What the guard says when all is frozen.
const FROZEN: &str = "frozen";

/// Longest time for which filesystems are frozen, in seconds.
pub const SECONDS_MAX: u32 = 10;

/// Frozen filesystems. They are thawed once this is dropped.
#[derive(Debug)]
pub struct Frozen {
    guard: Child,
}

/// Freezes the filesystems at these places.
///
/// # Errors
/// If one of them cannot be frozen. None of them is then.
pub fn freeze(places: &[PathBuf]) -> Result<Frozen, AttachError> {
    freeze_for(places, SECONDS_MAX)
}

fn freeze_for(places: &[PathBuf], seconds_max: u32) -> Result<Frozen, AttachError> {
    // Most data is written while others may still write too.
    places.iter().try_for_each(|place| synchronise(place))?;
    let mut frozen = Frozen { guard: start_guard(places, seconds_max)? };
    let said = frozen.guard.stdout.as_mut().expect("the guard's output is a pipe");
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).map_err(AttachError::system("hear from", "fsfreeze"))?;
    match line.trim_end() {
        FROZEN => Ok(frozen),
        words => Err(AttachError::Program { program: "fsfreeze", words: words.to_owned() }),
    }
}

fn synchronise(place: &Path) -> Result<(), AttachError> {
    let folder = File::open(place).map_err(AttachError::system("open", place))?;
    rustix::fs::syncfs(folder).map_err(AttachError::system("write the data of", place))
}

/// Starts the guard in a session of its own, so that no signal to the caller reaches it.
fn start_guard(places: &[PathBuf], seconds_max: u32) -> Result<Child, AttachError> {
    let mut command = Command::new("setsid");
    command.args(["--wait", "sh", "-c", GUARD]).arg(seconds_max.to_string()).args(places);
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(AttachError::system("start", "setsid"))
}

impl Frozen {
    /// Thaws the filesystems. True if they were frozen until now; false if the longest time was over before.
    pub fn thaw(mut self) -> bool {
        self.end().is_ok_and(|is_in_time| is_in_time)
    }

    fn end(&mut self) -> std::io::Result<bool> {
        drop(self.guard.stdin.take());
        Ok(self.guard.wait()?.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // The guard thaws them also if it cannot be waited for.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_tells_whether_it_was_told_or_the_time_was_over() {
        // Nothing is frozen at no place.
        assert!(freeze_for(&[], SECONDS_MAX).unwrap().thaw());
        let mut late = freeze_for(&[], 1).unwrap();
        let told = late.guard.stdin.take();
        assert!(!late.guard.wait().unwrap().success());
        drop(told);
        assert!(!late.thaw());
    }

    #[test]
    fn what_cannot_be_frozen_is_an_error() {
        assert!(freeze_for(&[PathBuf::from("/proc/self")], SECONDS_MAX).is_err());
        assert!(freeze_for(&[PathBuf::from("/nowhere")], SECONDS_MAX).is_err());
    }
}
