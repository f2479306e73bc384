//! The handshake: fixed newstyle negotiation, from the greeting to the terms of a session.

mod close;
mod options;
mod replies;

pub use close::CloseReason;

use crate::bounds::{
    OPTION_BYTES_MAX, OPTION_DRAIN_BYTES_MAX, OPTIONS_MAX, OUTPUT_PAUSE_BYTES, STRING_BYTES_MAX,
};
use crate::export::{ExportDirectory, ExportInfo, Session};
use crate::protocol::*;
use options::{ContextRequest, InfoRequest, Malformed};

/// Identifier of the `base:allocation` context, the only context.
const ALLOCATION_CONTEXT_ID: u32 = 1;

/// The server's side of one handshake.
///
/// It holds at most one option of its client, and no more than [`OPTION_BYTES_MAX`] bytes of that option.
#[derive(Debug)]
pub struct Handshake {
    awaited: Awaited,
    /// Bytes of the awaited piece that have arrived; never more than that piece.
    piece: Vec<u8>,
    options_seen: u32,
    client_is_fixed: bool,
    leave_out_zeroes: bool,
    structured_replies: bool,
    /// Export name for which the client last chose `base:allocation`.
    context_export: Option<String>,
}

/// The next piece of the client's stream.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        length: u32,
    },
    /// Data that is too long to keep and is skipped.
    DrainedData {
        option: u32,
        left: u32,
    },
    /// Nothing: the handshake is over.
    Nothing,
}

/// The result of one call of [`Handshake::advance`].
#[derive(Debug)]
pub struct Step {
    /// Number of input bytes that were consumed.
    pub consumed: usize,
    /// State of the handshake. In every case the caller sends the output first.
    pub progress: Progress,
}

/// The state of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// All input was consumed, and more is needed.
    NeedInput,
    /// Much output is waiting. The caller sends it, then calls again with the rest of the input.
    SendOutput,
    /// The handshake is over and the transmission phase begins. Input not consumed belongs to it.
    Transmission(Session),
    /// The connection must be closed.
    Close(CloseReason),
}

impl Handshake {
    /// Returns a handshake whose greeting was sent or is being sent.
    pub fn new() -> Handshake {
        Handshake {
            awaited: Awaited::ClientFlags,
            piece: Vec::new(),
            options_seen: 0,
            client_is_fixed: false,
            leave_out_zeroes: false,
            structured_replies: false,
            context_export: None,
        }
    }

    /// Returns the greeting, which the server sends before any input arrives.
    pub fn greeting() -> [u8; GREETING_BYTES] {
        let flags = NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES;
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&NBD_OPTS_MAGIC.to_be_bytes());
        bytes[16..].copy_from_slice(&flags.to_be_bytes());
        bytes
    }

    /// Memory that the handshake holds beyond its own size, in bytes; at most a small multiple of
    /// [`OPTION_BYTES_MAX`].
    pub fn memory_bytes(&self) -> usize {
        self.piece.capacity() + self.context_export.as_ref().map_or(0, String::capacity)
    }

    /// Consumes as much of `input` as it can, and appends the bytes to send to `output`.
    ///
    /// The input may be cut anywhere, even after every byte. After the end of the handshake it consumes
    /// nothing more.
    pub fn advance(&mut self, input: &[u8], directory: &dyn ExportDirectory, output: &mut Vec<u8>) -> Step {
        let output_start = output.len();
        let mut consumed = 0;
        loop {
            consumed += self.take(&input[consumed..]);
            if self.missing_bytes() > 0 {
                return Step { consumed, progress: Progress::NeedInput };
            }
            if let Some(progress) = self.digest(directory, output) {
                return Step { consumed, progress };
            }
            if output.len() - output_start >= OUTPUT_PAUSE_BYTES {
                return Step { consumed, progress: Progress::SendOutput };
            }
        }
    }

    /// Bytes that the awaited piece still lacks.
    fn missing_bytes(&self) -> usize {
        match self.awaited {
            Awaited::ClientFlags => 4 - self.piece.len(),
            Awaited::OptionHeader => OPTION_HEADER_BYTES - self.piece.len(),
            Awaited::OptionData { length, .. } => length as usize - self.piece.len(),
            Awaited::DrainedData { left, .. } => left as usize,
            Awaited::Nothing => 0,
        }
    }

    /// Moves bytes that the awaited piece lacks from `input`; returns their number.
    fn take(&mut self, input: &[u8]) -> usize {
        let taken = input.len().min(self.missing_bytes());
        match &mut self.awaited {
            Awaited::DrainedData { left, .. } => *left -= taken as u32,
            _ => self.piece.extend_from_slice(&input[..taken]),
        }
        taken
    }

    /// Acts on the complete awaited piece; returns how the handshake ended, if it did.
    fn digest(&mut self, directory: &dyn ExportDirectory, output: &mut Vec<u8>) -> Option<Progress> {
        let piece = std::mem::take(&mut self.piece);
        let end = match self.awaited {
            Awaited::ClientFlags => self.digest_client_flags(&piece),
            Awaited::OptionHeader => self.digest_option_header(&piece, output),
            Awaited::OptionData { option, .. } => {
                self.awaited = Awaited::OptionHeader;
                self.answer(option, &piece, directory, output)
            }
            Awaited::DrainedData { option, .. } => {
                self.awaited = Awaited::OptionHeader;
                replies::error(output, option, NBD_REP_ERR_TOO_BIG, "option is too long");
                None
            }
            Awaited::Nothing => Some(Progress::Close(CloseReason::AlreadyOver)),
        };
        if end.is_some() {
            self.awaited = Awaited::Nothing;
            return end;
        }
        // Keeps the allocation for the next piece.
        self.piece = piece;
        self.piece.clear();
        None
    }

    fn digest_client_flags(&mut self, piece: &[u8]) -> Option<Progress> {
        let flags = options::number_at(piece, 0);
        let unknown = flags & !(NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES);
        if unknown != 0 {
            return Some(Progress::Close(CloseReason::UnknownClientFlags(unknown)));
        }
        self.client_is_fixed = flags & NBD_FLAG_C_FIXED_NEWSTYLE != 0;
        self.leave_out_zeroes = flags & NBD_FLAG_C_NO_ZEROES != 0;
        self.awaited = Awaited::OptionHeader;
        None
    }

    fn digest_option_header(&mut self, piece: &[u8], output: &mut Vec<u8>) -> Option<Progress> {
        let magic = u64::from(options::number_at(piece, 0)) << 32 | u64::from(options::number_at(piece, 4));
        let option = options::number_at(piece, 8);
        let length = options::number_at(piece, 12);
        if let Some(reason) = self.objection(magic, option, length) {
            return Some(Progress::Close(reason));
        }
        self.options_seen += 1;
        if option == NBD_OPT_ABORT {
            // The option should have no data; any data is ignored.
            replies::acknowledge(output, option);
            return Some(Progress::Close(CloseReason::Aborted));
        }
        self.awaited = match length {
            0..=OPTION_BYTES_MAX => Awaited::OptionData { option, length },
            _ => Awaited::DrainedData { option, left: length },
        };
        None
    }

    /// Returns the reason why the connection cannot go on after the header of an option, if there is one.
    fn objection(&self, magic: u64, option: u32, length: u32) -> Option<CloseReason> {
        if magic != NBD_OPTS_MAGIC {
            return Some(CloseReason::BadOptionMagic(magic));
        }
        if self.options_seen >= OPTIONS_MAX {
            return Some(CloseReason::TooManyOptions);
        }
        if option == NBD_OPT_EXPORT_NAME {
            // The protocol has no error reply to this option.
            return (length as usize > STRING_BYTES_MAX).then_some(CloseReason::BadExportName);
        }
        if !self.client_is_fixed {
            return Some(CloseReason::NotFixedNewstyle(option));
        }
        let is_abort = option == NBD_OPT_ABORT;
        (length > OPTION_DRAIN_BYTES_MAX && !is_abort)
            .then_some(CloseReason::OptionTooLong { option, length })
    }

    /// Answers an option; returns how the handshake ended, if it did.
    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        directory: &dyn ExportDirectory,
        output: &mut Vec<u8>,
    ) -> Option<Progress> {
        let answered = match option {
            NBD_OPT_EXPORT_NAME => return Some(self.answer_export_name(data, directory, output)),
            NBD_OPT_LIST => options::empty(data).map(|()| replies::list(output, &directory.list())),
            NBD_OPT_INFO => self.answer_info(option, data, directory, output).map(|_| ()),
            NBD_OPT_GO => match self.answer_info(option, data, directory, output) {
                Ok(Some(session)) => return Some(Progress::Transmission(session)),
                other => other.map(|_| ()),
            },
            NBD_OPT_STRUCTURED_REPLY => options::empty(data).map(|()| {
                self.structured_replies = true;
                replies::acknowledge(output, option);
            }),
            NBD_OPT_LIST_META_CONTEXT => self.answer_list_contexts(data, directory, output),
            NBD_OPT_SET_META_CONTEXT => self.answer_set_context(data, directory, output),
            _ => {
                replies::error(output, option, NBD_REP_ERR_UNSUP, "option is not supported");
                Ok(())
            }
        };
        if let Err(Malformed(why)) = answered {
            replies::error(output, option, NBD_REP_ERR_INVALID, why);
        }
        None
    }

    fn answer_export_name(
        &self,
        data: &[u8],
        directory: &dyn ExportDirectory,
        output: &mut Vec<u8>,
    ) -> Progress {
        let Ok(name) = options::string(data) else {
            return Progress::Close(CloseReason::BadExportName);
        };
        let Some(export) = directory.find(name) else {
            return Progress::Close(CloseReason::UnknownExport(name.to_owned()));
        };
        let session = self.session(name, export);
        replies::export_name(output, &session, self.leave_out_zeroes);
        Progress::Transmission(session)
    }

    /// Describes an export. If the export exists, returns the session of a client that takes it.
    fn answer_info(
        &self,
        option: u32,
        data: &[u8],
        directory: &dyn ExportDirectory,
        output: &mut Vec<u8>,
    ) -> Result<Option<Session>, Malformed> {
        let request = InfoRequest::parse(data)?;
        let Some(export) = directory.find(request.export_name) else {
            replies::unknown_export(output, option);
            return Ok(None);
        };
        let session = self.session(request.export_name, export);
        replies::information(output, option, &request, &session);
        Ok(Some(session))
    }

    fn answer_list_contexts(
        &self,
        data: &[u8],
        directory: &dyn ExportDirectory,
        output: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let option = NBD_OPT_LIST_META_CONTEXT;
        let request = self.context_request(data)?;
        if directory.find(request.export_name).is_none() {
            replies::unknown_export(output, option);
            return Ok(());
        }
        if request.query_count == 0 || request.asks_for_base || request.asks_for_allocation {
            // The protocol reserves the identifier in this reply and demands zero.
            replies::allocation_context(output, option, 0);
        }
        replies::acknowledge(output, option);
        Ok(())
    }

    fn answer_set_context(
        &mut self,
        data: &[u8],
        directory: &dyn ExportDirectory,
        output: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let option = NBD_OPT_SET_META_CONTEXT;
        // Every request replaces the choice before it, even a request that fails.
        self.context_export = None;
        let request = self.context_request(data)?;
        if directory.find(request.export_name).is_none() {
            replies::unknown_export(output, option);
            return Ok(());
        }
        if request.asks_for_allocation {
            self.context_export = Some(request.export_name.to_owned());
            replies::allocation_context(output, option, ALLOCATION_CONTEXT_ID);
        }
        replies::acknowledge(output, option);
        Ok(())
    }

    fn context_request<'a>(&self, data: &'a [u8]) -> Result<ContextRequest<'a>, Malformed> {
        match self.structured_replies {
            true => ContextRequest::parse(data),
            false => Err(Malformed("structured replies must be negotiated first")),
        }
    }

    /// Returns the session of a client that takes the export under this name.
    fn session(&self, asked_name: &str, export: ExportInfo) -> Session {
        let has_context = self.context_export.as_deref() == Some(asked_name);
        Session {
            export,
            structured_replies: self.structured_replies,
            allocation_context: has_context.then_some(ALLOCATION_CONTEXT_ID),
        }
    }
}

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake::new()
    }
}
