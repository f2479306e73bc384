//! Messages between a daemon and a keeper: one packet each, with a device beside it where it says so.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Longest packet in bytes.
const PACKET_BYTES_MAX: usize = 256;

/// What a daemon asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Keep the device beside the packet under this name, instead of an earlier one.
    Keep(String),
    /// Hand a device over, and keep it.
    Give(String),
    /// Let go of a device.
    Drop(String),
}

/// What a keeper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The device is beside the packet.
    Here,
    /// There is no such device.
    Nothing,
    /// The question was not understood, or there are too many devices.
    Refused,
}

impl Question {
    /// The packet.
    pub fn encode(&self) -> String {
        match self {
            Question::Keep(name) => format!("keep {name}"),
            Question::Give(name) => format!("give {name}"),
            Question::Drop(name) => format!("drop {name}"),
        }
    }

    /// Reads a packet; `None` if it is no question.
    pub fn decode(packet: &[u8]) -> Option<Question> {
        let (word, name) = std::str::from_utf8(packet).ok()?.split_once(' ')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        let name = name.to_owned();
        match word {
            _ if !is_name => None,
            "keep" => Some(Question::Keep(name)),
            "give" => Some(Question::Give(name)),
            "drop" => Some(Question::Drop(name)),
            _ => None,
        }
    }
}

impl Answer {
    const ALL: [(Answer, &str); 4] = [
        (Answer::Done, "done"),
        (Answer::Here, "here"),
        (Answer::Nothing, "nothing"),
        (Answer::Refused, "refused"),
    ];

    /// The packet.
    pub fn encode(self) -> &'static str {
        Answer::ALL.iter().find(|(answer, _)| *answer == self).map_or("refused", |(_, word)| word)
    }

    /// Reads a packet; `None` if it is no answer.
    pub fn decode(packet: &[u8]) -> Option<Answer> {
        Answer::ALL.iter().find(|(_, word)| word.as_bytes() == packet).map(|(answer, _)| *answer)
    }
}

/// Sends a packet, with a device beside it if there is one.
pub fn send(socket: impl AsFd, packet: &[u8], device: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let devices: Vec<BorrowedFd<'_>> = device.into_iter().collect();
    if !devices.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&devices));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a packet and the device beside it; an empty packet means that the other side has gone.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut packet = [0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut packet)];
    let count = loop {
        match rustix::net::recvmsg(&socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    let devices = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(devices) => Some(devices),
        _ => None,
    });
    let device = devices.flatten().next();
    Ok((packet[..count].to_vec(), device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_mean_what_they_meant() {
        for (question, packet) in [
            (Question::Keep("a-1".to_owned()), "keep a-1"),
            (Question::Give("a-1".to_owned()), "give a-1"),
            (Question::Drop("a-1".to_owned()), "drop a-1"),
        ] {
            assert_eq!(question.encode(), packet);
            assert_eq!(Question::decode(packet.as_bytes()), Some(question));
        }
        for packet in ["", "keep", "keep ", "keep a b", "hold a", "keep \u{e9}", "keep a\0"] {
            assert_eq!(Question::decode(packet.as_bytes()), None, "{packet:?}");
        }
        for (answer, packet) in Answer::ALL {
            assert_eq!((answer.encode(), Answer::decode(packet.as_bytes())), (packet, Some(answer)));
        }
    }
}
