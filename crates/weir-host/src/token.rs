//! API token: the secret that requests over TCP must show.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use subtle::ConstantTimeEq;

use weir_types::control_bounds::{API_TOKEN_BYTES_MAX, API_TOKEN_BYTES_MIN};

/// Mode bits that let users other than the owner access a file.
const OTHERS: u32 = 0o077;

/// Cause why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        source: std::io::Error,
    },
    /// Other users may access the file.
    #[error("the token file {} has mode {mode:04o}, so others may read it; 'chmod 600 {0}' mends that", path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file holds no valid token.
    #[error(
        "the token file {} holds {found}; one line of {API_TOKEN_BYTES_MIN} to {API_TOKEN_BYTES_MAX} printable \
         characters without spaces is accepted, such as 'openssl rand -hex 32' writes", path.display()
    )]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Content that was found.
        found: String,
    },
}

/// Reads the token from a file that only its owner can access.
///
/// # Errors
/// If the file cannot be read, other users may access it, or it holds no valid token.
pub fn read_token(path: &Path) -> Result<String, TokenError> {
    let failed = |source| TokenError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    // The mode is that of the open file: by now another file may have its name.
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(TokenError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.by_ref().take(API_TOKEN_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).map_err(failed)?;
    decode(bytes).map_err(|found| TokenError::Content { path: path.to_owned(), found })
}

/// The token in the content of a file.
///
/// # Errors
/// The content, in words, if it is no token.
pub fn decode(content: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(content).map_err(|_| "bytes that are no text".to_owned())?;
    let token = text.trim_end_matches(['\r', '\n']);
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("characters that a token cannot have".to_owned());
    }
    match token.len() {
        API_TOKEN_BYTES_MIN..=API_TOKEN_BYTES_MAX => Ok(token.to_owned()),
        length => Err(format!("{length} characters")),
    }
}

/// The replaceable token of a running daemon.
pub struct Token(RwLock<String>);

impl Token {
    /// A token.
    pub fn new(token: String) -> Token {
        Token(RwLock::new(token))
    }

    /// Replaces the token that requests must show.
    pub fn replace(&self, token: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// What it is now, for another [`Token`].
    pub fn duplicate(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Compares in a time that does not depend on the number of equal bytes.
    pub fn is(&self, shown: &str) -> bool {
        let token = self.0.read().unwrap_or_else(PoisonError::into_inner);
        token.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_file_must_be_private_and_hold_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |content: &str, mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_token(&path).map_err(|error| error.to_string())
        };
        let token = "0123456789abcdef0123456789abcdef";
        assert_eq!(read(&format!("{token}\n"), 0o600).unwrap(), token);
        assert_eq!(read(token, 0o400).unwrap(), token);
        assert!(read(token, 0o640).unwrap_err().contains("mode 0640"));
        assert!(read("short\n", 0o600).unwrap_err().contains("5 characters"));
        assert!(read("", 0o600).unwrap_err().contains("0 characters"));
        assert!(read(&"x".repeat(5000), 0o600).unwrap_err().contains("characters"));
        assert!(read("two words that are long enough", 0o600).unwrap_err().contains("cannot have"));
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new("0123456789abcdef".to_owned());
        assert!(token.is("0123456789abcdef"));
        assert!(!token.is("0123456789abcde") && !token.is("0123456789abcdeX") && !token.is(""));
        token.replace("other".to_owned());
        assert!(token.is("other") && !token.is("0123456789abcdef"));
    }
}
