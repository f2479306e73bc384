//! For which version of an object a change is.

use serde::Deserialize;
use utoipa::IntoParams;

/// For which version of an object a change is.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct IfVersionQuery {
    /// Refuse the change with a conflict unless the object has this version.
    pub if_version: Option<u64>,
}

/// For which version of an object a change is, as a header says it.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatchHeader {
    /// The same as `if_version`: the `ETag` of the object, such as `"12"`.
    #[serde(rename = "If-Match")]
    pub if_match: Option<String>,
}

/// What a change is made of, and for which version.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangeQuery {
    /// The tenant; the default one if absent.
    pub tenant: Option<String>,
    /// Refuse the change with a conflict unless the object has this version.
    pub if_version: Option<u64>,
}
