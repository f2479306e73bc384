//! Entity tags: the version of an object in the header `If-Match`.

use weir_control::ControlError;
use weir_types::units::whole_number;

/// Reads the version in an entity tag; `None` for `*`, which every version matches.
///
/// # Errors
/// Invalid, if the tag is none of one object.
pub fn tagged_version(tag: &str) -> Result<Option<u64>, ControlError> {
    let tag = tag.trim();
    if tag == "*" {
        return Ok(None);
    }
    let digits = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
    whole_number(digits).map(Some).ok_or_else(|| {
        ControlError::invalid(format!(
            "If-Match: {tag} is not understood; the ETag of one object is, such as \"12\""
        ))
    })
}
