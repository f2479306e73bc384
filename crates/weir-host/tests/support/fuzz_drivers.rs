//! Fuzz driver: it decodes any bytes as a token file, and checks properties that hold for all bytes.

#![allow(dead_code)]

use weir_host::token::decode;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, EDITED};
use weir_types::control_bounds::{API_TOKEN_BYTES_MAX, API_TOKEN_BYTES_MIN};

/// The content of a token file. A decoded token is the only token of a file that holds it.
pub fn drive_token(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, content) = match choices.byte() % 3 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => (EDITED, choices.edited(b"0123456789abcdef0123456789abcdef\n", &["\r", "\n", " ", "\0", "abc"])),
    };
    match decode(content) {
        Ok(token) => {
            assert!((API_TOKEN_BYTES_MIN..=API_TOKEN_BYTES_MAX).contains(&token.len()));
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(decode(format!("{token}\n").into_bytes()), Ok(token));
            Case::new(way, true)
        }
        Err(found) => {
            assert!(!found.is_empty());
            Case::new(way, false)
        }
    }
}
