//! The cgroups of processes, as the kernel tells in `/proc/PID/cgroup` (cgroups(7)).

use std::fs;
use std::io;

use weir_types::Cgroup;

/// Returns the cgroups of a process or thread, one for each hierarchy.
///
/// # Errors
/// If there is no such process, or it cannot be examined.
pub fn cgroups_of(process: u32) -> io::Result<Vec<Cgroup>> {
    // The name of a cgroup below may be any bytes.
    let lines = fs::read(format!("/proc/{process}/cgroup"))?;
    Ok(String::from_utf8_lossy(&lines).lines().filter_map(Cgroup::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_in_cgroups_and_a_missing_one_is_an_error() {
        assert!(!cgroups_of(std::process::id()).unwrap().is_empty());
        assert!(cgroups_of(u32::MAX).is_err());
    }
}
