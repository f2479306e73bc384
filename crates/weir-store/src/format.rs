//! Format versions: which Weir can read the catalogue and the drives, and how no version drops unknown
//! fields.
//!
//! Every durable record says which readers may read it. An older Weir refuses a newer record before it
//! changes anything. A Weir that finds an unknown field refuses the record too, because rewriting the record
//! would lose the field.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version up to which this Weir reads records. Every change of a durable form that older versions must not
/// touch raises it.
pub const READER_VERSION: u32 = 1;

/// Least [`READER_VERSION`] that may read the records of this Weir. Both are raised together.
pub const MINIMUM_READER: u32 = 1;

/// Fields with a new name, as pairs of old and new name. Records of earlier versions have the old name.
const RENAMED: [(&str, &str); 1] = [("drive", "placement")];

/// The part of the catalogue that says who may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRecord {
    /// The least [`READER_VERSION`] that a reader needs.
    pub minimum_reader: u32,
    /// The version of the Weir that wrote this record.
    pub written_by: String,
}

impl FormatRecord {
    /// The record as this Weir writes it.
    pub fn current() -> FormatRecord {
        FormatRecord { minimum_reader: MINIMUM_READER, written_by: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Reader version of records without one: the first.
pub fn first_reader() -> u32 {
    1
}

/// Refuses records that only newer versions may read.
///
/// # Errors
/// The remedy, in words.
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

/// Reads a durable value as a record of which no field may be lost.
///
/// # Errors
/// The fault in the value or the unknown field, and the remedy.
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

/// Path of the first field that would be lost if the value were written again as it was understood.
fn lost(original: &Value, understood: &Value) -> Option<String> {
    match (original, understood) {
        (Value::Object(original), Value::Object(understood)) => original.iter().find_map(|(name, value)| {
            let other = RENAMED.iter().find(|(old, _)| old == name).map(|(_, new)| *new);
            match understood.get(name).or_else(|| understood.get(other?)) {
                Some(known) => lost(value, known).map(|inner| within(name, &inner)),
                // An empty field says nothing that could be lost.
                None => (!value.is_null()).then(|| name.clone()),
            }
        }),
        (Value::Array(original), Value::Array(understood)) => {
            let pairs = original.iter().zip(understood).enumerate();
            let inner = |(at, (value, known)): (usize, _)| {
                lost(value, known).map(|inner| within(&at.to_string(), &inner))
            };
            let cut_off = || (original.len() > understood.len()).then(|| understood.len().to_string());
            pairs.into_iter().find_map(inner).or_else(cut_off)
        }
        // A value of another form shows nothing of the fields or items that it was made of.
        (Value::Object(original), _) => (!original.is_empty()).then(String::new),
        (Value::Array(original), _) => (!original.is_empty()).then(String::new),
        _ => None,
    }
}

/// Path of a field within the value of this name.
fn within(name: &str, inner: &str) -> String {
    if inner.is_empty() { name.to_owned() } else { format!("{name}.{inner}") }
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

    /// A value with an older form: its parts, in an object or a list.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(from = "Form", into = "String")]
    struct Joined(String);

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Whole(String),
        Parts { parts: Vec<String> },
        List(Vec<String>),
    }

    impl Clone for Joined {
        fn clone(&self) -> Joined {
            Joined(self.0.clone())
        }
    }

    impl From<Form> for Joined {
        fn from(form: Form) -> Joined {
            match form {
                Form::Whole(text) => Joined(text),
                Form::Parts { parts } | Form::List(parts) => Joined(parts.concat()),
            }
        }
    }

    impl From<Joined> for String {
        fn from(joined: Joined) -> String {
            joined.0
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        joined: Joined,
    }

    #[test]
    fn field_within_a_value_of_another_form_is_not_dropped() {
        assert!(read::<Holder>(&json!({"joined": "ab"})).is_ok());
        for joined in [json!({"parts": ["a", "b"], "colour": 1}), json!(["a", "b"])] {
            let error = read::<Holder>(&json!({"joined": joined})).unwrap_err();
            assert!(error.contains("'joined'"), "{error}");
        }
    }

    #[test]
    fn newer_minimum_reader_is_refused_first() {
        let error = read_record(json!({"minimum_reader": READER_VERSION + 1})).unwrap_err();
        assert!(
            error.contains("readers of version 2 and later") && error.contains("start a Weir"),
            "{error}"
        );
        let current = FormatRecord::current();
        assert_eq!(read::<FormatRecord>(&serde_json::to_value(&current).unwrap()), Ok(current));
    }
}
