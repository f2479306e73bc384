//! Versions of objects: the `ETag` in answers, and the expected version in requests for a change.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::entity_tag::tagged_version;
use super::error::ApiError;
use weir_api_types::{
    AdaptivePolicyGroup, BackgroundPolicy, CgroupBinding, Drive, IfVersionQuery, PolicyGroup, Pool, Snapshot,
    Template, Tenant, Volume,
};
use weir_control::ControlError;

/// An object with a version, which a request for a change can state.
pub(super) trait HasVersion {
    /// Version of the object.
    fn version(&self) -> u64;
}

macro_rules! has_version {
    ($($object:ty),+) => {
        $(impl HasVersion for $object {
            fn version(&self) -> u64 {
                self.version
            }
        })+
    };
}

has_version!(
    Volume,
    Tenant,
    Template,
    PolicyGroup,
    AdaptivePolicyGroup,
    Pool,
    Drive,
    BackgroundPolicy,
    CgroupBinding,
    Snapshot
);

/// The answer that shows one object, with the version as the `ETag`.
pub(super) struct Tagged<T>(pub T);

/// Result of a handler that shows one object.
pub(super) type Shown<T> = Result<Tagged<T>, ApiError>;

impl<T: HasVersion + Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let tag = HeaderValue::try_from(format!("\"{}\"", self.0.version()));
        let tag = tag.expect("digits and quotes are accepted in a header");
        ([(header::ETAG, tag)], Json(self.0)).into_response()
    }
}

/// Version that the client expects of the object: `if_version` in the query, or the header `If-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IfVersion(pub Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for IfVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<IfVersion, ApiError> {
        let Query(query) = Query::<IfVersionQuery>::from_request_parts(parts, state).await?;
        let header = parts.headers.get(header::IF_MATCH).map(|value| value.to_str().unwrap_or(""));
        let by_header = header.map(tagged_version).transpose()?.flatten();
        match (query.if_version, by_header) {
            (Some(query), Some(header)) if query != header => {
                Err(ApiError::from(ControlError::invalid(format!(
                    "if_version={query} and If-Match: \"{header}\" name different versions; one of them is accepted"
                ))))
            }
            (query, header) => Ok(IfVersion(query.or(header))),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn read(query: &str, header: Option<&str>) -> Result<Option<u64>, ApiError> {
        let request = Request::builder().uri(format!("/v1/tenants/t?{query}"));
        let request = header.into_iter().fold(request, |request, tag| request.header("if-match", tag));
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(IfVersion::from_request_parts(&mut parts, &()));
        read.map(|IfVersion(version)| version)
    }

    #[test]
    fn expected_version_is_read_from_query_and_header() {
        for (query, header, expected) in [
            ("", None, None),
            ("if_version=12", None, Some(12)),
            ("tenant=a&if_version=12", None, Some(12)),
            ("", Some("\"12\""), Some(12)),
            ("", Some("12"), Some(12)),
            ("", Some("*"), None),
            ("if_version=12", Some("\"12\""), Some(12)),
        ] {
            assert_eq!(read(query, header).unwrap(), expected, "{query} {header:?}");
        }
        for (query, header) in [
            ("if_version=12", Some("\"13\"")),
            ("if_version=new", None),
            ("if_version=-1", None),
            ("", Some("W/\"12\"")),
            ("", Some("\"12\", \"13\"")),
            ("", Some("")),
        ] {
            assert!(read(query, header).is_err(), "{query} {header:?}: never taken for 'any version'");
        }
    }
}
