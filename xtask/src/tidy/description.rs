//! API description check: the description is in the tree. A test of the crate that serves the API checks that
//! it is current.

use anyhow::Result;
use serde_json::Value;

use super::{Complaint, Tree};

/// Path of the description.
const PATH: &str = "docs/openapi.json";

/// Complains if the description is missing or invalid.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let text = std::fs::read_to_string(tree.root.join(PATH));
    Ok(complaint_about(text.ok().as_deref()).into_iter().collect())
}

fn complaint_about(text: Option<&str>) -> Option<Complaint> {
    let Some(text) = text else {
        return Some(Complaint(format!("{PATH} is missing")));
    };
    let description: Value = serde_json::from_str(text).unwrap_or_default();
    let is_description = description["openapi"].is_string() && description["paths"].is_object();
    (!is_description).then(|| Complaint(format!("{PATH} is not an OpenAPI description")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_description_passes() {
        assert!(complaint_about(None).is_some());
        assert!(complaint_about(Some("{}")).is_some());
        assert!(complaint_about(Some(r#"{"openapi":"3.1.0","paths":{}}"#)).is_none());
    }
}
