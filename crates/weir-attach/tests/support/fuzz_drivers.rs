//! Fuzz drivers: they decode any bytes as a packet of the keeper and as a mount table, and check properties that hold
//! for all bytes.

#![allow(dead_code)]

use weir_attach::keeper::message::{Answer, Question};
use weir_attach::mount_table::parse;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED};

const PACKETS: [&str; 7] =
    ["keep a-1", "give 0198c0de-0000-7000-8000-000000000001", "drop a", "done", "here", "nothing", "refused"];

const TABLE: &[u8] = b"22 28 0:21 / /proc rw - proc proc rw\n\
    95 28 7:3 / /mnt/a\\040b rw,relatime shared:5 - ext4 /dev/loop3 rw\n\
    97 28 7:3 /sub /mnt/d rw - fuse.weir /dev/loop3 rw,discard\n";

/// A packet between daemon and keeper. It means one thing at most, and its meaning is written as the same packet.
pub fn drive_keeper_packet(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, packet) = match choices.byte() % 3 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => {
            let example = choices.pick(&PACKETS);
            (EDITED, choices.edited(example.as_bytes(), &["keep", "give", "drop", " ", "\0", "\u{e9}"]))
        }
    };
    let (question, answer) = (Question::decode(&packet), Answer::decode(&packet));
    let is_decoded = question.is_some() || answer.is_some();
    assert!(question.is_none() || answer.is_none(), "a question is no answer");
    if let Some(question) = question {
        assert_eq!(question.encode().as_bytes(), packet);
    }
    if let Some(answer) = answer {
        assert_eq!(answer.encode().as_bytes(), packet);
    }
    Case::new(way, is_decoded)
}

/// A mount table of the kernel. A line means the same whatever the other lines are, and never more than one mount.
pub fn drive_mount_table(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, table) = match choices.byte() % 3 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (
            EDITED,
            choices.edited(TABLE, &["\\040", "\\134", "\\999", " - ", ":", "\n", "-1", "4294967296"]),
        ),
    };
    let mounts = parse(&table);
    let by_line: Vec<_> = table.split(|byte| *byte == b'\n').flat_map(parse).collect();
    assert_eq!(mounts, by_line);
    Case::new(way, !mounts.is_empty())
}
