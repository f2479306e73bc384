//! The numbers of the NBD protocol, under the names of its specification.
//!
//! All of them travel in network byte order.

/// First magic number of the server's greeting: `NBDMAGIC`.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic number of the greeting, and magic number of every option: `IHAVEOPT`.
pub const NBD_OPTS_MAGIC: u64 = 0x4948_4156_454F_5054;
/// Magic number of every reply to an option.
pub const NBD_REP_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic number of every request.
pub const NBD_REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic number of a simple reply.
pub const NBD_SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic number of each chunk of a structured reply.
pub const NBD_STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag: the server answers every option.
pub const NBD_FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the server can leave out the zeroes after the reply to `NBD_OPT_EXPORT_NAME`.
pub const NBD_FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag: the client understands the replies to options.
pub const NBD_FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: the client wants the zeroes left out.
pub const NBD_FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// Transmission flag: always set.
pub const NBD_FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: writes are refused.
pub const NBD_FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: `NBD_CMD_FLUSH` is understood.
pub const NBD_FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: `NBD_CMD_FLAG_FUA` is understood.
pub const NBD_FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: `NBD_CMD_TRIM` is understood.
pub const NBD_FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: `NBD_CMD_WRITE_ZEROES` and `NBD_CMD_FLAG_NO_HOLE` are understood.
pub const NBD_FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: `NBD_CMD_FLAG_DF` is understood; only with structured replies.
pub const NBD_FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush on one connection covers the writes of all.
pub const NBD_FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: `NBD_CMD_CACHE` is understood.
pub const NBD_FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: `NBD_CMD_FLAG_FAST_ZERO` is understood.
pub const NBD_FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

/// Option: take this export, without a way to report an error.
pub const NBD_OPT_EXPORT_NAME: u32 = 1;
/// Option: end the handshake and the connection.
pub const NBD_OPT_ABORT: u32 = 2;
/// Option: list the exports.
pub const NBD_OPT_LIST: u32 = 3;
/// Option: encrypt from here on.
pub const NBD_OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const NBD_OPT_INFO: u32 = 6;
/// Option: describe an export and take it.
pub const NBD_OPT_GO: u32 = 7;
/// Option: use structured replies.
pub const NBD_OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: list the metadata contexts of an export.
pub const NBD_OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose metadata contexts of an export.
pub const NBD_OPT_SET_META_CONTEXT: u32 = 10;

/// Option reply: done.
pub const NBD_REP_ACK: u32 = 1;
/// Option reply: one export of the list.
pub const NBD_REP_SERVER: u32 = 2;
/// Option reply: one aspect of an export.
pub const NBD_REP_INFO: u32 = 3;
/// Option reply: one metadata context.
pub const NBD_REP_META_CONTEXT: u32 = 4;
/// Bit that is set in every option reply that is an error.
pub const NBD_REP_FLAG_ERROR: u32 = 1 << 31;
/// Option reply: the option is unknown to this server.
pub const NBD_REP_ERR_UNSUP: u32 = NBD_REP_FLAG_ERROR | 1;
/// Option reply: the option is malformed or out of place.
pub const NBD_REP_ERR_INVALID: u32 = NBD_REP_FLAG_ERROR | 3;
/// Option reply: there is no such export.
pub const NBD_REP_ERR_UNKNOWN: u32 = NBD_REP_FLAG_ERROR | 6;
/// Option reply: the option or its answer is too large.
pub const NBD_REP_ERR_TOO_BIG: u32 = NBD_REP_FLAG_ERROR | 9;

/// Information type: size and transmission flags.
pub const NBD_INFO_EXPORT: u16 = 0;
/// Information type: the canonical name.
pub const NBD_INFO_NAME: u16 = 1;
/// Information type: the description for people.
pub const NBD_INFO_DESCRIPTION: u16 = 2;
/// Information type: the block size constraints.
pub const NBD_INFO_BLOCK_SIZE: u16 = 3;

/// Namespace of the metadata contexts that the protocol itself defines; alone, the wildcard for all of them.
pub const NBD_META_NAMESPACE_BASE: &str = "base:";
/// The metadata context that reports holes and zeroes.
pub const NBD_META_BASE_ALLOCATION: &str = "base:allocation";
/// State in `base:allocation`: the range takes no space.
pub const NBD_STATE_HOLE: u32 = 1 << 0;
/// State in `base:allocation`: the range reads as zeroes.
pub const NBD_STATE_ZERO: u32 = 1 << 1;

/// Request: read.
pub const NBD_CMD_READ: u16 = 0;
/// Request: write; the only request that is followed by data.
pub const NBD_CMD_WRITE: u16 = 1;
/// Request: end the connection.
pub const NBD_CMD_DISC: u16 = 2;
/// Request: make all answered writes stable.
pub const NBD_CMD_FLUSH: u16 = 3;
/// Request: the range is no longer needed.
pub const NBD_CMD_TRIM: u16 = 4;
/// Request: the range will be needed soon.
pub const NBD_CMD_CACHE: u16 = 5;
/// Request: make the range read as zeroes.
pub const NBD_CMD_WRITE_ZEROES: u16 = 6;
/// Request: report the state of the range.
pub const NBD_CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: answer when the request's own writes are stable.
pub const NBD_CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag: zero the range without giving its space back.
pub const NBD_CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag: send the data in one chunk.
pub const NBD_CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag: report the state of one extent only.
pub const NBD_CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag: zero the range only if that is faster than writing zeroes.
pub const NBD_CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Structured reply flag: this chunk is the last one.
pub const NBD_REPLY_FLAG_DONE: u16 = 1 << 0;
/// Structured reply type: nothing but the end.
pub const NBD_REPLY_TYPE_NONE: u16 = 0;
/// Structured reply type: data at an offset.
pub const NBD_REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Structured reply type: zeroes at an offset.
pub const NBD_REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// Structured reply type: states of consecutive extents.
pub const NBD_REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Structured reply type: the request failed.
pub const NBD_REPLY_TYPE_ERROR: u16 = (1 << 15) | 1;
/// Structured reply type: the request failed at an offset.
pub const NBD_REPLY_TYPE_ERROR_OFFSET: u16 = (1 << 15) | 2;

/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option before its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a request before its payload.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Zeroes after the reply to `NBD_OPT_EXPORT_NAME`, unless left out.
pub const EXPORT_NAME_ZEROES: usize = 124;
