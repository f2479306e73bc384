//! Commands to ublk's control device (`linux/ublk_cmd.h`): each is sent through a ring of its own, and waited for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// How long a command may take. Starting and stopping wait for the server, and for requests that it serves.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A command to the control device: `struct ublksrv_ctrl_cmd`.
#[derive(Debug)]
pub struct ControlCommand<'a> {
    /// `UBLK_U_CMD_…`.
    pub operation: u32,
    /// Number of the device; `u32::MAX` lets the driver choose one.
    pub device: u32,
    /// A number that belongs to the command.
    pub data: u64,
    /// What the driver reads or writes.
    pub memory: &'a mut [u8],
}

/// Sends a command, and waits until it has ended.
///
/// # Errors
/// The errors of io_uring, and those of the driver. Timed out if the driver does not answer.
pub fn control(device: &impl AsFd, command: ControlCommand<'_>) -> io::Result<u32> {
    let mut uring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder().build(2)?;
    // The driver may use it after this has given up waiting.
    let mut memory = command.memory.to_vec().into_boxed_slice();
    let entry = opcode::UringCmd80::new(Fd(device.as_fd().as_raw_fd()), command.operation)
        .cmd(encoded(&command, memory.as_mut_ptr() as u64))
        .build();
    // SAFETY: the memory that the command names stays where it is until the driver has answered: otherwise it is
    // leaked below.
    let pushed = unsafe { uring.submission().push(&entry) };
    pushed.expect("a new ring has room");
    let result = match wait(&mut uring) {
        Ok(result) => result,
        Err(error) => {
            Box::leak(memory);
            return Err(error);
        }
    };
    command.memory.copy_from_slice(&memory);
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Waits for the driver's answer.
fn wait(uring: &mut IoUring<squeue::Entry128, cqueue::Entry>) -> io::Result<i32> {
    let time = Timespec::from(TIME_MAX);
    loop {
        let waited = uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
        if let Some(entry) = uring.completion().next() {
            return Ok(entry.result());
        }
        match waited {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
}

fn encoded(command: &ControlCommand<'_>, address: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0..4].copy_from_slice(&command.device.to_ne_bytes());
    // No command is about a queue.
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    let length = u16::try_from(command.memory.len()).expect("the driver's structures are short");
    bytes[6..8].copy_from_slice(&length.to_ne_bytes());
    if length > 0 {
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    }
    bytes[16..24].copy_from_slice(&command.data.to_ne_bytes());
    bytes
}
