//! ublk devices: made, found again after the end of their server, and given back.
//!
//! A device outlives its server: the driver keeps its requests, and sends those again that were not answered. Each device
//! carries a mark that tells whose it is.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::kernel::kernel_version;
use crate::ublk_control::{ControlCommand, control};

/// The device for commands.
const CONTROL: &str = "/dev/ublk-control";
/// Requests that a device has at most.
pub const DEPTH: u16 = 128;
/// Requests that the kernel uses of them. The driver of Linux before 6.16 notices the end of a server only by a tag that
/// waits, so some always do.
const REQUESTS_MAX: u16 = DEPTH - 8;
/// Longest request in bytes: what the engine serves in one piece.
const REQUEST_BYTES_MAX: u32 = weir_types::bounds::PIECE_BYTES as u32;
/// How long the driver may take to see that a server has ended.
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause between two tries.
const END_PAUSE: Duration = Duration::from_millis(10);

/// `UBLK_U_CMD_…`: read-only ones by `_IOR`, and others by `_IOWR`, with the size of `struct ublksrv_ctrl_cmd`.
const GET_INFO: u32 = 0x8020_7502;
const ADD: u32 = 0xC020_7504;
const START: u32 = 0xC020_7506;
const STOP: u32 = 0xC020_7507;
const SET_PARAMETERS: u32 = 0xC020_7508;
const START_RECOVERY: u32 = 0xC020_7510;
const END_RECOVERY: u32 = 0xC020_7511;
const GET_FEATURES: u32 = 0x8020_7513;
const DELETE_LATER: u32 = 0x8020_7514;
const UPDATE_SIZE: u32 = 0xC020_7515;

/// `UBLK_F_…`: recovery, in which requests are sent again; commands by their encoded numbers; payloads moved by hand.
const FLAGS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
/// `UBLK_F_UPDATE_SIZE`.
const CAN_RESIZE: u64 = 1 << 10;

/// Oldest kernel whose driver ends the commands of a server that stops.
const KERNEL_MIN: (u32, u32) = (6, 7);

/// A device as the driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The mark that it was made with.
    pub mark: u64,
    /// `UBLK_S_DEV_…`.
    state: u16,
}

impl DeviceInfo {
    /// True if it waits for a server (`UBLK_S_DEV_QUIESCED`).
    fn is_waiting(&self) -> bool {
        self.state == 2
    }

    /// True if the device was started, so that it may have users.
    pub fn is_started(&self) -> bool {
        self.state != 0
    }
}

/// `struct ublksrv_ctrl_dev_info`, as far as it is used: where its fields are.
mod info {
    pub const BYTES: usize = 64;
    pub const QUEUES: usize = 0;
    pub const DEPTH: usize = 2;
    pub const STATE: usize = 4;
    pub const REQUEST_BYTES_MAX: usize = 8;
    pub const NUMBER: usize = 12;
    pub const FLAGS: usize = 24;
    pub const MARK: usize = 32;
}

/// Why this kernel has no such devices; `None` if it has.
pub fn unavailable() -> Option<String> {
    let load =
        || Command::new("modprobe").arg("ublk_drv").stdin(Stdio::null()).stderr(Stdio::null()).status();
    let is_loaded = || Path::new(CONTROL).exists();
    if !is_loaded() && (load().is_err() || !is_loaded()) {
        return Some("the kernel has no ublk driver ('modprobe ublk_drv' loads it)".to_owned());
    }
    if kernel_version() < KERNEL_MIN {
        return Some(format!("ublk needs Linux {}.{} or later", KERNEL_MIN.0, KERNEL_MIN.1));
    }
    match features() {
        Ok(features) if features & FLAGS == FLAGS => None,
        Ok(_) => Some("the kernel's ublk driver is too old".to_owned()),
        Err(error) => Some(format!("the kernel's ublk driver does not answer: {error}")),
    }
}

fn features() -> io::Result<u64> {
    let mut features = [0; 8];
    command(GET_FEATURES, u32::MAX, 0, &mut features)?;
    Ok(u64::from_ne_bytes(features))
}

/// The block device of a number.
pub fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// The number of a block device; `None` if it is another kind of device.
pub fn number_of(device: &Path) -> Option<u32> {
    device.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()
}

/// The numbers of all devices.
pub fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries.filter_map(number).collect()
}

fn server_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{number}"))
}

/// Makes a device, which has no block device before it is started. Returns its number, which the driver chooses.
///
/// # Errors
/// The driver's.
pub fn add(mark: u64, size_bytes: u64, is_read_only: bool) -> io::Result<u32> {
    let mut wanted = [0; info::BYTES];
    put(&mut wanted, info::QUEUES, &1_u16.to_ne_bytes());
    put(&mut wanted, info::DEPTH, &DEPTH.to_ne_bytes());
    put(&mut wanted, info::REQUEST_BYTES_MAX, &REQUEST_BYTES_MAX.to_ne_bytes());
    put(&mut wanted, info::NUMBER, &u32::MAX.to_ne_bytes());
    put(&mut wanted, info::FLAGS, &(FLAGS | features()? & CAN_RESIZE).to_ne_bytes());
    put(&mut wanted, info::MARK, &mark.to_ne_bytes());
    command(ADD, u32::MAX, 0, &mut wanted)?;
    let number = u32::from_ne_bytes(wanted[info::NUMBER..][..4].try_into().expect("four bytes"));
    let set = command(SET_PARAMETERS, number, 0, &mut parameters(size_bytes, is_read_only));
    if set.is_err() {
        // Nothing stays of a device that cannot be used.
        let _ = delete(number);
    }
    set.map(|_| number)
}

/// `struct ublk_params` with its basic part and that of discards.
fn parameters(size_bytes: u64, is_read_only: bool) -> [u8; 60] {
    /// `UBLK_PARAM_TYPE_BASIC` and `…_DISCARD`.
    const PARTS: u32 = 0b11;
    /// `UBLK_ATTR_VOLATILE_CACHE` and `…_FUA`.
    const ATTRIBUTES: u32 = 0b1100;
    /// Logarithms of the block sizes: the logical one is that of every other kind of attachment, so that a filesystem
    /// can go from one to another.
    const LOGICAL_AND_PHYSICAL: [u8; 2] = [9, 12];
    const SECTOR_BYTES: u64 = 512;
    /// Discards and zeroes: aligned to a block, of any length that the driver can count, in one piece.
    const GRANULE: u32 = 4096;
    let longest = (u32::MAX / GRANULE * GRANULE) / SECTOR_BYTES as u32;
    let mut bytes = [0; 60];
    put(&mut bytes, 0, &60_u32.to_ne_bytes());
    put(&mut bytes, 4, &PARTS.to_ne_bytes());
    put(&mut bytes, 8, &(ATTRIBUTES | u32::from(is_read_only)).to_ne_bytes());
    put(&mut bytes, 12, &LOGICAL_AND_PHYSICAL);
    put(&mut bytes, 16, &(REQUEST_BYTES_MAX / SECTOR_BYTES as u32).to_ne_bytes());
    put(&mut bytes, 24, &(size_bytes / SECTOR_BYTES).to_ne_bytes());
    put(&mut bytes, 44, &GRANULE.to_ne_bytes());
    put(&mut bytes, 48, &longest.to_ne_bytes());
    put(&mut bytes, 52, &longest.to_ne_bytes());
    put(&mut bytes, 56, &1_u16.to_ne_bytes());
    bytes
}

/// The server's side of a device, which one process has at a time.
///
/// # Errors
/// Busy while an earlier server has it.
pub fn open_server(number: u32) -> io::Result<OwnedFd> {
    patiently(|| Ok(rustix::fs::open(server_path(number), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?))
}

/// Lets the block device appear. The caller's process serves it: every tag has been asked for.
///
/// # Errors
/// The driver's.
pub fn start(number: u32) -> io::Result<()> {
    command(START, number, own_process(), &mut [])?;
    tune(number)
}

/// Describes a device; `None` if there is none with this number.
///
/// # Errors
/// The driver's.
pub fn find(number: u32) -> io::Result<Option<DeviceInfo>> {
    let mut bytes = [0; info::BYTES];
    match command(GET_INFO, number, 0, &mut bytes) {
        Err(error) if is(&error, Errno::NODEV) || error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => {
            found?;
            let state = u16::from_ne_bytes([bytes[info::STATE], bytes[info::STATE + 1]]);
            let mark = bytes[info::MARK..][..8].try_into().expect("eight bytes");
            Ok(Some(DeviceInfo { mark: u64::from_ne_bytes(mark), state }))
        }
    }
}

/// Begins to take a device over from a server that has ended.
///
/// # Errors
/// Busy if the server has not ended.
pub fn begin_recovery(number: u32) -> io::Result<()> {
    match patiently(|| command(START_RECOVERY, number, 0, &mut [])) {
        // An earlier server has begun and not ended its recovery: the driver before Linux 6.16 begins only once.
        Err(error) if is(&error, Errno::INVAL) && find(number)?.is_some_and(|found| found.is_waiting()) => {
            Ok(())
        }
        begun => begun.map(drop),
    }
}

/// Lets the driver send requests again. The caller's process serves the device: every tag has been asked for.
///
/// # Errors
/// The driver's.
pub fn end_recovery(number: u32) -> io::Result<()> {
    command(END_RECOVERY, number, own_process(), &mut [])?;
    tune(number)
}

/// Lets a device have another size. False if the driver cannot do that: the device keeps its size until it is made anew.
///
/// # Errors
/// The driver's.
pub fn resize(number: u32, size_bytes: u64) -> io::Result<bool> {
    if features()? & CAN_RESIZE == 0 {
        return Ok(false);
    }
    command(UPDATE_SIZE, number, size_bytes / 512, &mut []).map(|_| true)
}

/// Stops a device: its block device goes. Requests that were not answered are waited for, if it has a server, and
/// otherwise fail.
///
/// # Errors
/// The driver's.
pub fn stop(number: u32) -> io::Result<()> {
    command(STOP, number, 0, &mut []).map(drop)
}

/// Deletes a stopped device, once nobody has it open.
///
/// # Errors
/// The driver's.
pub fn delete(number: u32) -> io::Result<()> {
    command(DELETE_LATER, number, 0, &mut []).map(drop)
}

/// Sets the attributes of the queue. The device works without them, less well.
fn tune(number: u32) -> io::Result<()> {
    let queue = PathBuf::from(format!("/sys/block/ublkb{number}/queue"));
    // The order matters: a scheduler has requests of its own.
    fs::write(queue.join("scheduler"), "none")
        .and_then(|()| fs::write(queue.join("nr_requests"), REQUESTS_MAX.to_string()))
        .or(Ok(()))
}

fn own_process() -> u64 {
    std::process::id().into()
}

/// Repeats what finds the device busy, while the driver notices that a server has ended.
fn patiently<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + END_TIME_MAX;
    loop {
        match attempt() {
            Err(error) if is(&error, Errno::BUSY) && Instant::now() < until => std::thread::sleep(END_PAUSE),
            done => return done,
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn command(operation: u32, device: u32, data: u64, memory: &mut [u8]) -> io::Result<u32> {
    let opened = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    control(&opened, ControlCommand { operation, device, data, memory })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_device_is_known_by_its_number() {
        assert_eq!(number_of(&path(12)), Some(12));
        assert_eq!((number_of(Path::new("/dev/loop1")), number_of(Path::new("/dev/ublkb"))), (None, None));
    }

    #[test]
    fn parameters_are_where_the_driver_reads_them() {
        let bytes = parameters(1 << 20, true);
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(0), number(4), number(8), number(16)), (60, 3, 0b1101, 256));
        assert_eq!((number(24), number(44), number(56)), (2048, 4096, 1));
    }
}
