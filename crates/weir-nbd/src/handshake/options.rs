//! Decoding the data of options.

use crate::bounds::STRING_BYTES_MAX;
use crate::protocol::*;

/// An option that the protocol does not allow in this form or at this point, with a reason for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Accepts only an option without data.
pub(super) fn empty(data: &[u8]) -> Result<(), Malformed> {
    match data.is_empty() {
        true => Ok(()),
        false => Err(Malformed("this option has no data")),
    }
}

/// Decodes a string of the protocol: UTF-8, without NUL, not too long.
pub(super) fn string(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(Malformed("a string is longer than 4096 bytes"));
    }
    if bytes.contains(&0) {
        return Err(Malformed("a string has a NUL"));
    }
    std::str::from_utf8(bytes).map_err(|_| Malformed("a string is not UTF-8"))
}

/// Returns the 32-bit number at a position, which must be inside.
pub(super) fn number_at(bytes: &[u8], start: usize) -> u32 {
    bytes[start..start + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The unread rest of an option's data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed("the data is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number16(&mut self) -> Result<u16, Malformed> {
        self.bytes(2).map(|bytes| u16::from(bytes[0]) << 8 | u16::from(bytes[1]))
    }

    fn number32(&mut self) -> Result<u32, Malformed> {
        self.bytes(4).map(|bytes| number_at(bytes, 0))
    }

    /// Reads a string that is preceded by its length.
    fn string(&mut self) -> Result<&'a str, Malformed> {
        let length = self.number32()?;
        string(self.bytes(length as usize)?)
    }

    fn end(&self) -> Result<(), Malformed> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Malformed("the data is too long")),
        }
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    pub(super) export_name: &'a str,
    pub(super) wants_name: bool,
    pub(super) wants_description: bool,
    pub(super) wants_block_size: bool,
}

impl InfoRequest<'_> {
    /// Decodes the data. Unknown kinds of information are ignored, as the protocol demands.
    pub(super) fn parse(data: &[u8]) -> Result<InfoRequest<'_>, Malformed> {
        let mut fields = Fields(data);
        let export_name = fields.string()?;
        let count = fields.number16()?;
        let mut request =
            InfoRequest { export_name, wants_name: false, wants_description: false, wants_block_size: false };
        for _ in 0..count {
            match fields.number16()? {
                NBD_INFO_NAME => request.wants_name = true,
                NBD_INFO_DESCRIPTION => request.wants_description = true,
                NBD_INFO_BLOCK_SIZE => request.wants_block_size = true,
                _ => {}
            }
        }
        fields.end()?;
        Ok(request)
    }
}

/// The data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextRequest<'a> {
    pub(super) export_name: &'a str,
    pub(super) query_count: u32,
    /// Whether one of the queries is `base:`.
    pub(super) asks_for_base: bool,
    /// Whether one of the queries is `base:allocation`.
    pub(super) asks_for_allocation: bool,
}

impl ContextRequest<'_> {
    /// Decodes the data. Queries for contexts that do not exist are ignored, as the protocol demands.
    pub(super) fn parse(data: &[u8]) -> Result<ContextRequest<'_>, Malformed> {
        let mut fields = Fields(data);
        let export_name = fields.string()?;
        let query_count = fields.number32()?;
        let mut request =
            ContextRequest { export_name, query_count, asks_for_base: false, asks_for_allocation: false };
        // However large the count is, the data ends the loop: every query takes at least four bytes.
        for _ in 0..query_count {
            match fields.string()? {
                NBD_META_NAMESPACE_BASE => request.asks_for_base = true,
                NBD_META_BASE_ALLOCATION => request.asks_for_allocation = true,
                _ => {}
            }
        }
        fields.end()?;
        Ok(request)
    }
}
