//! Which versions of Weir can read what lies in the catalogue and on drives, and that none drops what it does not know.
//!
//! Everything durable says which readers it is for. A Weir that is older refuses it before it changes anything; one that
//! finds a field which it does not know refuses that too, because writing the record again would lose the field.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What this Weir can read. It is raised with every change of a durable form that older ones must not touch.
pub const READER_VERSION: u32 = 1;

/// What may read what this Weir writes. It is raised together with [`READER_VERSION`].
pub const MINIMUM_READER: u32 = 1;

/// Fields that have another name now: as records of earlier versions have them.
const RENAMED: [(&str, &str); 1] = [("drive", "placement")];

/// What the catalogue says of who may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRecord {
    /// The least [`READER_VERSION`] that a reader needs.
    pub minimum_reader: u32,
    /// The version of the Weir that said so.
    pub written_by: String,
}

impl FormatRecord {
    /// As this Weir writes it.
    pub fn current() -> FormatRecord {
        FormatRecord { minimum_reader: MINIMUM_READER, written_by: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// The reader of everything from before it was said: the first.
pub fn first_reader() -> u32 {
    1
}

/// Refuses what only newer versions may read.
///
/// # Errors
/// What to do, in words.
pub fn refuse_newer(minimum_reader: u32) -> Result<(), String> {
    if minimum_reader <= READER_VERSION {
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    Err(format!(
        "it is for readers of version {minimum_reader} and later, and this Weir {version} reads version \
         {READER_VERSION}; start a Weir that is at least as new as the one that wrote it"
    ))
}

/// Reads a durable value as a record of which nothing may be lost.
///
/// # Errors
/// What is wrong with it, or which field of it is not known, and what to do.
pub fn read<T: Serialize + serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    let minimum_reader = value.get("minimum_reader").and_then(Value::as_u64);
    let minimum_reader =
        minimum_reader.map_or(first_reader(), |least| u32::try_from(least).unwrap_or(u32::MAX));
    refuse_newer(minimum_reader)?;
    let record = T::deserialize(value).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(&record).map_err(|error| error.to_string())?;
    match lost(value, &written) {
        None => Ok(record),
        Some(field) => Err(format!(
            "its field '{field}' is not known to this Weir {}, which would drop it; start a Weir that is at least as new \
             as the one that wrote it",
            env!("CARGO_PKG_VERSION")
        )),
    }
}

/// The path of the first field that would be lost if a value were written again as it was understood.
fn lost(original: &Value, understood: &Value) -> Option<String> {
    match (original, understood) {
        (Value::Object(original), Value::Object(understood)) => original.iter().find_map(|(name, value)| {
            let other = RENAMED.iter().find(|(old, _)| old == name).map(|(_, new)| *new);
            match understood.get(name).or_else(|| understood.get(other?)) {
                Some(known) => lost(value, known).map(|inner| format!("{name}.{inner}")),
                // What was left empty says nothing that could be lost.
                None => (!value.is_null()).then(|| name.clone()),
            }
        }),
        (Value::Array(original), Value::Array(understood)) => {
            let pairs = original.iter().zip(understood).enumerate();
            let inner = |(at, (value, known))| lost(value, known).map(|inner| format!("{at}.{inner}"));
            pairs.into_iter().find_map(inner)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        size: u64,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record {
        #[serde(flatten)]
        inner: Inner,
        placement: Option<String>,
        list: Vec<Inner>,
    }

    fn read_record(value: Value) -> Result<Record, String> {
        read(&value)
    }

    #[test]
    fn unknown_field_is_refused_with_its_path() {
        let known = json!({"size": 1, "placement": "d", "list": [{"size": 2}], "gone": null});
        assert_eq!(read_record(known.clone()).unwrap().list, [Inner { size: 2 }]);
        for (pointer, field) in [("", "'colour'"), ("/list/0", "'list.0.colour'")] {
            let mut newer = known.clone();
            newer.pointer_mut(pointer).unwrap()["colour"] = json!(false);
            let error = read_record(newer).unwrap_err();
            assert!(error.contains(field) && error.contains("at least as new"), "{error}");
        }
    }

    #[test]
    fn newer_minimum_reader_is_refused_before_anything_is_read() {
        let error = read_record(json!({"minimum_reader": READER_VERSION + 1})).unwrap_err();
        assert!(
            error.contains("readers of version 2 and later") && error.contains("start a Weir"),
            "{error}"
        );
        let current = FormatRecord::current();
        assert_eq!(read::<FormatRecord>(&serde_json::to_value(&current).unwrap()), Ok(current));
    }
}
