//! Opening of a session: the first message of a mount, and the terms that it settles.

use crate::answer::ReplyHeader;
use crate::errno::Errno;
use crate::protocol::*;
use crate::request::Unique;
use crate::wire::Fields;

/// Oldest minor version of the protocol that works: it can say how many pages a request may have.
const MINOR_VERSION_MIN: u32 = 31;

/// Terms of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Minor version of the protocol that the kernel speaks.
    pub minor_version: u32,
    /// Whether the kernel sends unanswered requests again when a new daemon asks for them. It can do so from
    /// Linux 6.9 on.
    pub can_resend: bool,
}

/// The fields of the first message.
struct Offer {
    major: u32,
    minor: u32,
    flags: u64,
}

fn offer(fields: &mut Fields<'_>) -> Option<Offer> {
    let (major, minor, _readahead, low) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let has_more = u64::from(low) & FUSE_INIT_EXT != 0;
    let high = if has_more { fields.u32()? } else { 0 };
    Some(Offer { major, minor, flags: u64::from(low) | u64::from(high) << 32 })
}

/// Answers the first message. Returns the terms too, unless the session has none yet: a newer kernel asks
/// again with the version of the answer.
pub(crate) fn answer(unique: Unique, mut fields: Fields<'_>) -> (ReplyHeader, Option<Terms>) {
    let Some(Offer { major, minor, flags }) = offer(&mut fields) else {
        return (ReplyHeader::error(unique, Errno::Invalid), None);
    };
    if major < FUSE_KERNEL_VERSION || major == FUSE_KERNEL_VERSION && minor < MINOR_VERSION_MIN {
        return (ReplyHeader::error(unique, Errno::NotSupported), None);
    }
    let wanted = FUSE_ASYNC_READ
        | FUSE_BIG_WRITES
        | FUSE_ASYNC_DIO
        | FUSE_ABORT_ERROR
        | FUSE_MAX_PAGES
        | FUSE_INIT_EXT
        | FUSE_HAS_RESEND;
    let agreed = flags & wanted;
    let readahead_bytes: u32 = 0;
    let nanoseconds_of_times: u32 = 1;
    let pages_max = (IO_BYTES_MAX / 4096) as u16;
    let header = ReplyHeader::ok(unique)
        .with(FUSE_KERNEL_VERSION.to_ne_bytes())
        .with(FUSE_KERNEL_MINOR_VERSION.to_ne_bytes())
        .with(readahead_bytes.to_ne_bytes())
        .with((agreed as u32).to_ne_bytes())
        .with(BACKGROUND_MAX.to_ne_bytes())
        .with((BACKGROUND_MAX * 3 / 4).to_ne_bytes())
        .with(IO_BYTES_MAX.to_ne_bytes())
        .with(nanoseconds_of_times.to_ne_bytes())
        .with(pages_max.to_ne_bytes())
        .with(0u16.to_ne_bytes())
        .with(((agreed >> 32) as u32).to_ne_bytes())
        .with([0; 28])
        .complete();
    let terms = Terms { minor_version: minor, can_resend: agreed & FUSE_HAS_RESEND != 0 };
    (header, (major == FUSE_KERNEL_VERSION).then_some(terms))
}
