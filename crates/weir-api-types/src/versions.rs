//! Versions that a client expects of the object that it changes.

use serde::Deserialize;
use utoipa::IntoParams;

/// Expected version of the object that is changed, in the query.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct IfVersionQuery {
    /// Refuse the change with a conflict unless the object has this version.
    pub if_version: Option<u64>,
}

/// Expected version of the object that is changed, in a header.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatchHeader {
    /// The `ETag` of the object, for example `"12"`. The header has the same effect as `if_version`.
    #[serde(rename = "If-Match")]
    pub if_match: Option<String>,
}
