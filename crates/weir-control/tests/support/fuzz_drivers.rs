//! Fuzz drivers: they decode any bytes as the records of the catalogue and as the files of the state folder.
//! They check properties that hold for all bytes.

#![allow(dead_code)]

use std::path::Path;
use std::sync::LazyLock;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_control::records::{
    AttachmentRecord, DriveRecord, NodeRecord, PolicyGroupRecord, RecordBackup, TemplateRecord, TenantRecord,
    VolumeRecord, keys,
};
use weir_control::system_tables::{is_swap, mounts_of, signatures};
use weir_control::{DriveListBackup, SavedCredits};
use weir_store::format::{self, FormatRecord};
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED, JSON_WORDS};
use weir_types::bounds::VOLUME_SIZE_BYTES_MAX;

/// The documents that the first version wrote.
static FIRST_VERSION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../src/tests/fixtures/catalogue-1.json")).expect("it is JSON")
});

/// The records of the first version's catalogue: keys and values.
static RECORDS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let entries = FIRST_VERSION["entries"].as_array().expect("a list").iter();
    let mut records: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry["key"].as_str().expect("a key").to_owned(), bytes(&entry["value"])))
        .collect();
    let template = json!({
        "name": "fast", "replicas": ["high", "low"], "read_from": "high", "generation": 1,
        "created_at": "2026-11-23T04:23:43Z"
    });
    records.push(("template/fast".to_owned(), bytes(&template)));
    let attachment = json!({
        "id": "84892b7a-92b2-4ffd-911b-ea172c30e8b4", "volume": "5b6f4c0e-8f0b-4c58-9d3e-2f3f4f9a8d11",
        "node": "6b6f4c0e-8f0b-4c58-9d3e-2f3f4f9a8d11", "method": "fuse", "is_read_only": false,
        "consumer": "a test", "device": "/dev/loop0", "file": "0:57:1", "link": "/dev/weir/default/vol1",
        "created_at": "2026-11-23T04:23:43Z"
    });
    records.push(("attachment/84892b7a".to_owned(), bytes(&attachment)));
    records.push((keys::FORMAT.to_owned(), bytes(&FormatRecord::current())));
    records
});

static BACKUPS: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| FIRST_VERSION["backups"].as_array().expect("a list").iter().map(bytes).collect());

static DRIVE_LIST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let entries = FIRST_VERSION["entries"].as_array().expect("a list");
    let of = |prefix: &str| {
        let is_it = |entry: &&Value| entry["key"].as_str().is_some_and(|key| key.starts_with(prefix));
        entries.iter().filter(is_it).map(|entry| entry["value"].clone()).collect::<Vec<_>>()
    };
    bytes(&json!({"format": 1, "minimum_reader": 1, "node": of(keys::NODE)[0], "drives": of(keys::DRIVES)}))
});

const CREDITS: &[u8] = br#"{"format":1,"credits":[
    {"scope":{"tenant":"svm01"},"limit":{"dimension":"total_operations","rate":"sustained"},
     "credit_ns":5,"at_ns":70}]}"#;

const TABLE: &[u8] =
    b"36 22 7:1 / /srv/with\\040space\\134s rw,noatime shared:1 master:2 - xfs /dev/loop1 rw\n\
    /dev/zram0 partition 1024 0 100\n";

const SIGNATURES: &[u8] = br#"{"signatures": [{"device":"loop0", "offset":"0x438", "type":"ext4",
    "uuid":"6ba7b810-9dad-41d1-80b4-00c04fd430c8", "label":"data", "usage":"filesystem"}]}"#;

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it has a JSON form")
}

/// A record of the catalogue. A record that was read is written to a value that is read as the same record,
/// and no field is lost.
pub fn drive_catalogue_record(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (key, example) = &RECORDS[usize::from(choices.byte()) % RECORDS.len()];
    let (way, content) = any_or_edited(&mut choices, example);
    let Ok(value) = serde_json::from_slice(&content) else { return Case::new(way, false) };
    let kind = key.split_once('/').map_or("", |(kind, _)| kind);
    let is_decoded = match kind {
        "tenant" => is_kept::<TenantRecord>(&value),
        "policy-group" => is_kept::<PolicyGroupRecord>(&value),
        "drive" => is_kept::<DriveRecord>(&value),
        "template" => is_kept::<TemplateRecord>(&value),
        "attachment" => is_kept::<AttachmentRecord>(&value),
        "volume" => is_kept::<VolumeRecord>(&value),
        "node" => is_kept::<NodeRecord>(&value),
        "format" => is_kept::<FormatRecord>(&value),
        _ => is_kept::<u64>(&value),
    };
    Case::new(way, is_decoded)
}

fn is_kept<T: Serialize + DeserializeOwned>(value: &Value) -> bool {
    let Ok(record) = format::read::<T>(value) else { return false };
    let written = serde_json::to_value(&record).expect("a record has a JSON form");
    let again: T = format::read(&written).expect("what was written is read");
    assert_eq!(serde_json::to_value(&again).expect("a record has a JSON form"), written);
    true
}

/// The record backup beside a volume's extents.
pub fn drive_record_backup(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let example = &BACKUPS[usize::from(choices.byte()) % BACKUPS.len()];
    let (way, content) = any_or_edited(&mut choices, example);
    let Ok(backup) = RecordBackup::decode(&content) else { return Case::new(way, false) };
    assert!(backup.volume.size_bytes <= VOLUME_SIZE_BYTES_MAX);
    assert_eq!(RecordBackup::decode(&bytes(&backup)), Ok(backup));
    Case::new(way, true)
}

/// The backup of the list of drives.
pub fn drive_drive_list_backup(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, content) = any_or_edited(&mut choices, &DRIVE_LIST);
    let Ok(backup) = DriveListBackup::decode(&content) else { return Case::new(way, false) };
    assert_eq!(DriveListBackup::decode(&bytes(&backup)), Ok(backup));
    Case::new(way, true)
}

/// The saved burst credit.
pub fn drive_saved_credits(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, content) = any_or_edited(&mut choices, CREDITS);
    let Ok(saved) = SavedCredits::decode(&content) else { return Case::new(way, false) };
    assert_eq!(SavedCredits::decode(&bytes(&saved)), Ok(saved));
    Case::new(way, true)
}

/// The tables of the system, and the signatures on a device. They are text of the kernel and of `wipefs`,
/// with labels and paths that others chose.
pub fn drive_system_tables(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let example = if choices.one_in(2) { SIGNATURES } else { TABLE };
    let (way, content) = any_or_edited(&mut choices, example);
    let text = String::from_utf8_lossy(&content);
    let mounts = mounts_of(&text, 0x0701.into(), Path::new("/dev/loop1"));
    assert!(mounts.len() <= text.lines().count());
    let is_swap = is_swap(&text, Path::new("/dev/zram0"));
    let found = signatures(&text).unwrap_or_default();
    found.iter().for_each(|signature| assert!(!signature.to_string().is_empty()));
    Case::new(way, !mounts.is_empty() || is_swap || !found.is_empty())
}

fn any_or_edited(choices: &mut Choices<'_>, example: &[u8]) -> (&'static str, Vec<u8>) {
    match choices.byte() % 8 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(example, &JSON_WORDS)),
    }
}
