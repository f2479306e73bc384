//! Fuzz driver: it parses any text as a size, a rate, a time, an emulation and a name, and checks properties
//! that hold for all texts.

#![allow(dead_code)]

use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case};
use weir_types::adaptive::{parse_block_size, parse_iops_per_tb};
use weir_types::background::{parse_deadline, write_deadline};
use weir_types::emulation::parse_time;
use weir_types::units::{ByteRate, Size};
use weir_types::{Emulation, Name, Throughput};

/// Way of a text made of the words that the parsers know.
pub const WORDS: &str = "known words";

const KNOWN: [&str; 40] = [
    "0",
    "1",
    "9",
    "42",
    "999",
    "18446744073709551615",
    "18446744073709551616",
    ".",
    "5",
    ",",
    " ",
    "/",
    "=",
    "-",
    "+",
    "B",
    "kB",
    "MB",
    "TB",
    "KiB",
    "GiB",
    "PiB",
    "k",
    "s",
    "ms",
    "us",
    "ns",
    "h",
    "d",
    "IOPS",
    "/s",
    "ps",
    "/TB",
    "/GB",
    "none",
    "iops=",
    "bandwidth=",
    "latency=",
    "parallel=",
    "nvme",
];

/// Parses a text in each notation. A value that was parsed is formatted and parsed to the same value again.
pub fn drive_units(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, text) = match choices.byte() % 3 {
        0 => (ANY_BYTES, String::from_utf8_lossy(choices.rest()).into_owned()),
        _ => {
            let count = 1 + choices.byte() % 12;
            (WORDS, (0..count).map(|_| choices.pick(&KNOWN)).collect())
        }
    };
    Case::new(way, is_parsed(&text))
}

fn is_parsed(text: &str) -> bool {
    let parsed = [
        is_size(text),
        is_rate(text),
        is_emulation(text),
        is_deadline(text),
        parse_time(text).map_err(|error| assert!(!error.to_string().is_empty())).is_ok(),
        parse_iops_per_tb(text).is_some(),
        parse_block_size(text).is_some(),
        is_name(text),
    ];
    // A sign is no part of any number.
    assert!(!text.contains('+') || parsed == [false; 8], "'{text}' was accepted: {parsed:?}");
    parsed.contains(&true)
}

fn is_size(text: &str) -> bool {
    let Ok(size) = Size::parse(text, 1 << 30) else { return false };
    assert_eq!(Size::parse(&size.exact(), 1), Ok(size));
    // A person sees three digits.
    let shown = Size::parse(&size.to_string(), 1).map(|shown| shown.0.abs_diff(size.0));
    // Rounded up, the largest of all is more than a size can be.
    let is_near =
        shown.map_or(size.0 >= u64::MAX - u64::MAX / 199, |difference| difference <= size.0 / 199 + 1);
    assert!(is_near, "{size} for {text}");
    true
}

fn is_rate(text: &str) -> bool {
    let Ok(rate) = Throughput::parse(text) else { return false };
    assert_eq!(Throughput::parse(&rate.to_string()), Ok(rate));
    if let Some(bytes) = rate.bytes_per_second {
        assert!(ByteRate(bytes).to_string().ends_with("/s"));
    }
    true
}

fn is_emulation(text: &str) -> bool {
    let Ok(emulation) = Emulation::parse(text) else { return false };
    assert_eq!(emulation.checked(), Ok(emulation));
    assert_eq!(Emulation::parse(&emulation.to_string()), Ok(emulation));
    assert_eq!(Emulation::parse(&emulation.parameters()), Ok(emulation));
    true
}

fn is_deadline(text: &str) -> bool {
    let Ok(deadline) = parse_deadline(text) else { return false };
    if let Some(seconds) = deadline {
        assert_eq!(parse_deadline(&write_deadline(seconds)), Ok(deadline));
    }
    true
}

fn is_name(text: &str) -> bool {
    let Ok(name) = Name::new(text) else { return false };
    assert_eq!(name.as_str(), text);
    true
}
