//! Names of volumes, tenants and policy groups.

use serde::{Deserialize, Serialize};

use crate::bounds::NAME_BYTES_MAX;

/// Name of the drive in the state folder, which always exists.
pub const DEFAULT_DRIVE: &str = "default";

/// Name of the tenant that always exists.
pub const DEFAULT_TENANT: &str = "default";

/// The name [`DEFAULT_DRIVE`].
pub fn default_drive() -> Name {
    Name::new(DEFAULT_DRIVE).expect("the name of the default drive is valid")
}

/// A valid name: 1 to 128 characters of `A-Z a-z 0-9 . _ -`, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Reason why a text is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is longer than [`NAME_BYTES_MAX`].
    #[error("name '{0}' is longer than {NAME_BYTES_MAX} characters")]
    TooLong(String),
    /// The text has a character that names must not have.
    #[error("name '{name}' has the character {character:?}; letters, digits, '.', '_' and '-' are accepted")]
    BadCharacter {
        /// The whole text.
        name: String,
        /// The first character that is not accepted.
        character: char,
    },
    /// The text begins with something other than a letter or digit.
    #[error("name '{0}' must begin with a letter or a digit")]
    BadStart(String),
    /// The text is reserved: `none` unbinds a policy.
    #[error("name '{0}' is reserved")]
    Reserved(String),
}

impl Name {
    /// Checks a text and turns it into a name.
    pub fn new(text: impl Into<String>) -> Result<Name, NameError> {
        let text = text.into();
        let Some(first) = text.chars().next() else {
            return Err(NameError::Empty);
        };
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong(text));
        }
        let is_accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(character) = text.chars().find(|&c| !is_accepted(c)) {
            return Err(NameError::BadCharacter { name: text, character });
        }
        if !first.is_ascii_alphanumeric() {
            return Err(NameError::BadStart(text));
        }
        if text.eq_ignore_ascii_case("none") {
            return Err(NameError::Reserved(text));
        }
        Ok(Name(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Name, NameError> {
        Name::new(text)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for good in ["a", "test-high", "vol1", "A.b_c-9", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "ü", "none", "NONE", &"x".repeat(129)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
