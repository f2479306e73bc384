//! System programs that examine devices and make filesystems, and how they are run.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weir_types::control_bounds::PROGRAM_OUTPUT_BYTES_MAX;

/// A system program, and the package that contains it.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    package: &'static str,
}

/// The program that shows the signatures on a device.
pub const WIPEFS: Program = Program { name: "wipefs", package: "util-linux" };
/// The program that makes XFS filesystems.
pub const MKFS_XFS: Program = Program { name: "mkfs.xfs", package: "xfsprogs" };

/// Folders of system programs, searched even if PATH does not name them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Failure of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program is not installed.
    #[error("{} is not installed; 'apt-get install {}' brings it", .0.name, .0.package)]
    Missing(&'static Program),
    /// The program could not be run.
    #[error("{} cannot be run: {cause}", program.name)]
    Unusable {
        /// The program.
        program: &'static Program,
        /// Cause of the failure.
        cause: io::Error,
    },
    /// The program reported a failure.
    #[error("{} failed: {words}", program.name)]
    Failed {
        /// The program.
        program: &'static Program,
        /// Error output of the program, on one line.
        words: String,
    },
}

impl Program {
    fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
        folders.map(|folder| folder.join(self.name)).find(|candidate| candidate.is_file())
    }

    /// Runs the program to its end, and returns its output.
    ///
    /// # Errors
    /// If the program is not installed, or fails.
    pub fn run(&'static self, arguments: &[&str]) -> Result<String, ProgramError> {
        let path = self.find().ok_or(ProgramError::Missing(self))?;
        let unusable = |cause| ProgramError::Unusable { program: self, cause };
        let mut command = Command::new(path);
        command.args(arguments).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(unusable)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (printed, said) = std::thread::scope(|scope| {
            // Both pipes are read at the same time, so that the program never blocks on one of them.
            let said = scope.spawn(|| beginning(stderr));
            (beginning(stdout), said.join().unwrap_or_default())
        });
        match child.wait().map_err(unusable)? {
            status if status.success() => Ok(printed),
            status => {
                let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
                let words = if lines.is_empty() { status.to_string() } else { lines.join("; ") };
                Err(ProgramError::Failed { program: self, words })
            }
        }
    }
}

/// Reads the output of a program up to the limit; the rest is not read.
fn beginning(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // Output before an error is better than none.
        let _ = pipe.take(PROGRAM_OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: Program = Program { name: "sh", package: "dash" };
    const NOWHERE: Program = Program { name: "no-such-program-anywhere", package: "nothing" };

    #[test]
    fn program_returns_its_output_or_the_reason_of_its_failure() {
        assert_eq!(SHELL.run(&["-c", "echo yes; echo no >&2"]).unwrap(), "yes\n");
        let failed = |script| SHELL.run(&["-c", script]).unwrap_err().to_string();
        assert_eq!(failed("echo one >&2; echo; echo ' two' >&2; exit 3"), "sh failed: one; two");
        assert_eq!(failed("exit 3"), "sh failed: exit status: 3");
        let missing = NOWHERE.run(&[]).unwrap_err().to_string();
        assert_eq!(missing, "no-such-program-anywhere is not installed; 'apt-get install nothing' brings it");
    }

    #[test]
    fn program_output_is_bounded() {
        let script = "while echo 'on and on and on and on and on and on and on'; do :; done 2>&1";
        let printed = match SHELL.run(&["-c", script]) {
            Ok(printed) => printed,
            // The program failed because the pipe was closed.
            Err(ProgramError::Failed { .. }) => String::new(),
            Err(error) => panic!("{error}"),
        };
        assert!(printed.len() as u64 <= PROGRAM_OUTPUT_BYTES_MAX);
    }
}
