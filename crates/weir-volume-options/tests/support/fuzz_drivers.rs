//! Fuzz driver: it reads any text as the name of a volume with options, and checks properties that hold for all texts.

#![allow(dead_code)]

use std::collections::BTreeMap;

use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case};
use weir_types::Name;
use weir_volume_options::{Specification, name_of};

/// Way of a text made of the words that the reader knows.
pub const WORDS: &str = "known words";

const KNOWN: [&str; 40] = [
    "name=",
    "size=",
    "repl=",
    "replicas=",
    "io_priority=",
    "priority_io=",
    "cos=",
    "io_profile=",
    "flush_window=",
    "coalesce_fua=",
    "allow_shared_failure_domain=",
    "template=",
    "policy_group=",
    "fs=",
    "shared=",
    "journal=",
    "nodiscard=",
    "NAME=",
    "vol",
    "a",
    "10G",
    "10",
    "0",
    "18446744073709551615",
    "1",
    "3",
    "4",
    "high",
    "med",
    "auto",
    "db_remote",
    "50ms",
    "10s",
    "true",
    "false",
    "xfs",
    ",",
    ",",
    " ",
    "=",
];

/// A name that may have options. Read again with its options apart, it means the same volume.
pub fn drive_volume_options(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, text) = match choices.byte() % 3 {
        0 => (ANY_BYTES, String::from_utf8_lossy(choices.rest()).into_owned()),
        _ => {
            let mut text = String::from("name=");
            while !choices.is_used_up() && text.len() < 400 {
                text.push_str(choices.pick(&KNOWN));
            }
            (WORDS, text)
        }
    };
    let read = Specification::read(&text, &BTreeMap::new());
    assert_eq!(name_of(&text).ok(), read.as_ref().ok().map(|specification| specification.name.clone()));
    if let Ok(specification) = &read {
        assert!(Name::new(specification.name.as_str()).is_ok());
        assert!(specification.replicas.is_none_or(|replicas| (1..=3).contains(&replicas)));
        assert_eq!(read_apart(&text).as_ref(), Some(specification), "options beside the name mean the same");
        let request = specification.request(1 << 30);
        assert_eq!(request.name, specification.name);
    }
    Case::new(way, read.is_ok())
}

/// The same options, given beside the name.
fn read_apart(text: &str) -> Option<Specification> {
    let all = text.split(',').filter_map(|option| option.split_once('='));
    let mut options: BTreeMap<String, String> =
        all.map(|(key, value)| (key.trim().to_ascii_lowercase(), value.to_owned())).collect();
    let name = options.remove("name").map_or_else(|| text.to_owned(), |name| name.trim().to_owned());
    Specification::read(&name, &options).ok()
}
