//! Fuzz drivers: they decode any text as a page token, an entity tag and the body of a request, and check
//! properties that hold for all texts.
//!
//! The decoders are included by their files, so that a fuzz target needs no HTTP server.

#![allow(dead_code)]

#[path = "../../src/entity_tag.rs"]
mod entity_tag;
#[path = "../../src/paging.rs"]
mod paging;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_api_types::*;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED, FIELDS, JSON_WORDS};

/// The examples in the description of the API, by the type of the body.
static EXAMPLES: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../src/description/examples.json")).expect("it is JSON")
});

/// The page token. A token that is understood is the one that its key makes, but for the case of its letters.
pub fn drive_page_token(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, token) = match choices.byte() % 3 {
        0 => (ANY_BYTES, String::from_utf8_lossy(choices.rest()).into_owned()),
        1 => {
            let token = paging::encode(&paging::key("svm01", "vol1"));
            let token = choices.edited(token.as_bytes(), &["+", "0", "ff", "c3a9", "C3"]);
            (EDITED, String::from_utf8_lossy(&token).into_owned())
        }
        _ => {
            let key = String::from_utf8_lossy(choices.rest());
            assert_eq!(paging::decode(&paging::encode(&key)).ok().as_deref(), Some(&*key));
            (FIELDS, paging::encode(&key))
        }
    };
    match paging::decode(&token) {
        Ok(key) => {
            assert_eq!(paging::encode(&key), token.to_ascii_lowercase());
            assert!(paging::Page::of(Some(1), Some(&token)).is_ok());
            Case::new(way, true)
        }
        Err(error) => {
            assert_eq!(error.field, Some("page_token"));
            Case::new(way, false)
        }
    }
}

/// The entity tag of the header `If-Match`.
pub fn drive_entity_tag(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, tag) = match choices.byte() % 2 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(b"\"12\"", &["*", "\"", "W/", "+", " ", "18446744073709551615"])),
    };
    let tag = String::from_utf8_lossy(&tag);
    match entity_tag::tagged_version(&tag) {
        Ok(Some(version)) => {
            assert_eq!(entity_tag::tagged_version(&format!("\"{version}\"")).ok(), Some(Some(version)));
            assert!(!tag.contains('+'), "a sign is no part of a version");
        }
        Ok(None) => assert_eq!(tag.trim(), "*"),
        Err(_) => return Case::new(way, false),
    }
    Case::new(way, true)
}

/// The body of a request. A body that is understood is written to one that is understood as the same.
pub fn drive_request_body(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (name, is_understood) = choices.pick(&BODIES);
    let example = EXAMPLES.get(name).map_or_else(|| "{}".to_owned(), Value::to_string);
    let (way, body) = match choices.byte() % 8 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(example.as_bytes(), &JSON_WORDS)),
    };
    Case::new(way, is_understood(&body))
}

type Body = (&'static str, fn(&[u8]) -> bool);

const BODIES: [Body; 23] = [
    ("AdaptivePolicyGroupCreate", is_understood::<AdaptivePolicyGroupCreate>),
    ("AdaptivePolicyGroupModify", is_understood::<AdaptivePolicyGroupModify>),
    ("BackgroundPolicyModify", is_understood::<BackgroundPolicyModify>),
    ("DriveCreate", is_understood::<DriveCreate>),
    ("DriveModify", is_understood::<DriveModify>),
    ("Logging", is_understood::<Logging>),
    ("PoliciesApply", is_understood::<PoliciesApply>),
    ("PolicyGroupCreate", is_understood::<PolicyGroupCreate>),
    ("PolicyGroupModify", is_understood::<PolicyGroupModify>),
    ("PolicySet", is_understood::<PolicySet>),
    ("PoolModify", is_understood::<PoolModify>),
    ("RecordingCreate", is_understood::<RecordingCreate>),
    ("SnapshotCreate", is_understood::<SnapshotCreate>),
    ("SnapshotRestore", is_understood::<SnapshotRestore>),
    ("TemplateCreate", is_understood::<TemplateCreate>),
    ("TemplateModify", is_understood::<TemplateModify>),
    ("TenantCreate", is_understood::<TenantCreate>),
    ("TenantModify", is_understood::<TenantModify>),
    ("VolumeClone", is_understood::<VolumeClone>),
    ("VolumeCreate", is_understood::<VolumeCreate>),
    ("VolumeModify", is_understood::<VolumeModify>),
    ("Volume", is_understood::<Volume>),
    ("Problem", is_understood::<Problem>),
];

fn is_understood<T: Serialize + DeserializeOwned>(body: &[u8]) -> bool {
    let Ok(understood) = serde_json::from_slice::<T>(body) else { return false };
    let written = serde_json::to_value(&understood).expect("a body has a JSON form");
    let again: T = serde_json::from_value(written.clone()).expect("what was written is understood");
    assert_eq!(serde_json::to_value(&again).expect("a body has a JSON form"), written);
    true
}
