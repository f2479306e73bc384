//! Replies to options.

use super::options::InfoRequest;
use crate::bounds::{LIST_BYTES_MAX, STRING_BYTES_MAX};
use crate::export::Session;
use crate::protocol::*;

/// Appends one reply whose data is given in parts.
fn reply(output: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    // The length fits: every part is a number or a string of at most STRING_BYTES_MAX bytes.
    let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
    output.extend_from_slice(&NBD_REP_MAGIC.to_be_bytes());
    for number in [option, kind, length] {
        output.extend_from_slice(&number.to_be_bytes());
    }
    for part in parts {
        output.extend_from_slice(part);
    }
}

pub(super) fn acknowledge(output: &mut Vec<u8>, option: u32) {
    reply(output, option, NBD_REP_ACK, &[]);
}

/// Answers with an error and a text for the client's user.
pub(super) fn error(output: &mut Vec<u8>, option: u32, kind: u32, text: &'static str) {
    reply(output, option, kind, &[text.as_bytes()]);
}

pub(super) fn unknown_export(output: &mut Vec<u8>, option: u32) {
    error(output, option, NBD_REP_ERR_UNKNOWN, "there is no such export");
}

/// Returns the text, cut off at the longest string that the protocol allows.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(STRING_BYTES_MAX)]
}

/// Answers with all exports, or with an error if they are too many for one answer.
pub(super) fn list(output: &mut Vec<u8>, exports: &[(String, String)]) {
    let start = output.len();
    // A client could not ask for a name that the protocol does not allow.
    for (name, description) in exports.iter().filter(|(name, _)| name.len() <= STRING_BYTES_MAX) {
        let name_length = (name.len() as u32).to_be_bytes();
        let parts = [&name_length, name.as_bytes(), cut(description)];
        reply(output, NBD_OPT_LIST, NBD_REP_SERVER, &parts);
        if output.len() - start > LIST_BYTES_MAX {
            output.truncate(start);
            return error(output, NBD_OPT_LIST, NBD_REP_ERR_TOO_BIG, "there are too many exports to list");
        }
    }
    acknowledge(output, NBD_OPT_LIST);
}

/// Answers with the requested information, and always with size and flags.
pub(super) fn information(output: &mut Vec<u8>, option: u32, request: &InfoRequest<'_>, session: &Session) {
    let export = &session.export;
    let mut inform = |kind: u16, parts: [&[u8]; 3]| {
        let kind = kind.to_be_bytes();
        reply(output, option, NBD_REP_INFO, &[&kind, parts[0], parts[1], parts[2]]);
    };
    let flags = export.transmission_flags(session.structured_replies).to_be_bytes();
    inform(NBD_INFO_EXPORT, [&export.size_bytes.to_be_bytes(), &flags, &[]]);
    if request.wants_name {
        inform(NBD_INFO_NAME, [cut(&export.name), &[], &[]]);
    }
    if request.wants_description && !export.description.is_empty() {
        inform(NBD_INFO_DESCRIPTION, [cut(&export.description), &[], &[]]);
    }
    if request.wants_block_size {
        let sizes = [export.block_size_minimum, export.block_size_preferred, export.block_size_maximum];
        let [minimum, preferred, maximum] = sizes.map(u32::to_be_bytes);
        inform(NBD_INFO_BLOCK_SIZE, [&minimum, &preferred, &maximum]);
    }
    acknowledge(output, option);
}

/// Appends the reply that describes the `base:allocation` context.
pub(super) fn allocation_context(output: &mut Vec<u8>, option: u32, id: u32) {
    let name = NBD_META_BASE_ALLOCATION.as_bytes();
    reply(output, option, NBD_REP_META_CONTEXT, &[&id.to_be_bytes(), name]);
}

/// Answers `NBD_OPT_EXPORT_NAME`, in a form that is older than all other replies.
pub(super) fn export_name(output: &mut Vec<u8>, session: &Session, leave_out_zeroes: bool) {
    let flags = session.export.transmission_flags(session.structured_replies);
    output.extend_from_slice(&session.export.size_bytes.to_be_bytes());
    output.extend_from_slice(&flags.to_be_bytes());
    if !leave_out_zeroes {
        output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
    }
}
