//! Device users: the processes that have opened a block device or a file, as the kernel tells in `/proc/PID/fd` (proc(5)).

use std::fs;
use std::path::Path;

use rustix::fs::FileType;

/// A process that has opened a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub process: u32,
    /// Name of its program.
    pub program: String,
}

/// Returns the processes that have opened the device with this number, without the caller's own. Processes whose
/// files the caller may not see are left out.
pub fn users_of(device_number: u64) -> Vec<User> {
    users_that_opened(|file| is_device(file, device_number))
}

/// Returns the processes that have opened the file at this place, without the caller's own. Processes whose files the
/// caller may not see are left out. The file is not examined, so it need not be served.
pub fn users_of_file(place: &Path) -> Vec<User> {
    users_that_opened(|file| fs::read_link(file).is_ok_and(|target| target == place))
}

/// Returns the processes that have an open file of which this is true. It is asked about files in `/proc/PID/fd`.
fn users_that_opened(is_wanted: impl Fn(&Path) -> bool) -> Vec<User> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let users = numbers.filter(|process| *process != std::process::id() && has_opened(*process, &is_wanted));
    users.map(|process| User { process, program: program_of(process) }).collect()
}

fn has_opened(process: u32, is_wanted: impl Fn(&Path) -> bool) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files.map(|entry| entry.path()).any(|file| is_wanted(&file))
}

fn is_device(file: &Path, device_number: u64) -> bool {
    // To examine a file of a network filesystem may take for ever. Devices are elsewhere.
    if !fs::read_link(file).is_ok_and(|target| target.starts_with("/dev")) {
        return false;
    }
    let found = rustix::fs::stat(file);
    found.is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice && found.st_rdev == device_number
    })
}

fn program_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
