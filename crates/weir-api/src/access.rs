//! Access: which requests are accepted, by sender, host and web page.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use weir_api_types::ErrorCode;
use weir_host::token::Token;

/// Listener of a request, and the sender as the listener knows it.
#[derive(Clone)]
pub enum Entrance {
    /// The Unix socket; the kernel identifies the peer.
    Unix {
        /// True if the peer may administer the daemon.
        may_administer: bool,
        /// User ID of the peer.
        user: Option<u32>,
    },
    /// TCP; a token shows that the sender may administer the daemon.
    Tcp {
        /// Token of the daemon.
        token: Arc<Token>,
    },
}

/// A refusal of a request, with its cause.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    fn forbidden(message: String) -> Refusal {
        Refusal { status: StatusCode::FORBIDDEN, message }
    }
}

impl Refusal {
    /// HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Cause of the refusal, in words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = match self.status {
            StatusCode::UNAUTHORIZED => ErrorCode::Unauthorized,
            _ => ErrorCode::Forbidden,
        };
        let mut response = ApiError::new(code, self.message).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Accepts or refuses a request by its head.
///
/// # Errors
/// If the sender may not administer the daemon, or if a web page of another host caused the request.
pub fn admit(entrance: &Entrance, request: &Parts) -> Result<(), Refusal> {
    refuse_other_pages(request)?;
    match entrance {
        Entrance::Unix { may_administer: true, .. } => Ok(()),
        Entrance::Unix { user, .. } => {
            let user = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
            Err(Refusal::forbidden(format!(
                "{user} may not administer this daemon; root, the daemon's own user and members of the group \
                 of 'weir serve --admin-group' may"
            )))
        }
        Entrance::Tcp { token } => {
            refuse_other_hosts(&request.headers)?;
            refuse_without_token(&request.headers, token)
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or(""))
}

fn is_this_host(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    matches!(name.map_or(host, |(name, _)| name), "localhost" | "127.0.0.1" | "[::1]")
}

/// Refuses requests that name another host. A web page sends one after it has pointed its own host name at
/// this machine (DNS rebinding).
fn refuse_other_hosts(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = text(headers, header::HOST).unwrap_or("");
    if is_this_host(host) {
        return Ok(());
    }
    let message = format!("host '{host}' is not accepted; localhost, 127.0.0.1 and [::1] are");
    Err(Refusal::forbidden(message))
}

/// Refuses changes that a web page of another host sends through a browser. They do harm even if the page
/// cannot read the answer (cross-site request forgery).
fn refuse_other_pages(request: &Parts) -> Result<(), Refusal> {
    if matches!(request.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let Some(origin) = text(&request.headers, header::ORIGIN) else { return Ok(()) };
    let host = text(&request.headers, header::HOST).unwrap_or("");
    let is_own = origin.strip_prefix("http://").is_some_and(|page| page == host && is_this_host(page));
    if is_own {
        return Ok(());
    }
    let method = &request.method;
    let message = format!("{method} for a page of '{origin}' is not accepted; programs send no Origin");
    Err(Refusal::forbidden(message))
}

fn refuse_without_token(headers: &HeaderMap, token: &Token) -> Result<(), Refusal> {
    let shown = text(headers, header::AUTHORIZATION).and_then(|value| value.split_once(' '));
    match shown {
        Some((scheme, shown)) if scheme.eq_ignore_ascii_case("bearer") && token.is(shown.trim()) => Ok(()),
        shown => {
            let fault = if shown.is_some() { "the token is not the daemon's" } else { "a token is missing" };
            let message = format!(
                "{fault}: over TCP every request shows the token of 'weir serve --api-token-file' \
                 ('Authorization: Bearer TOKEN'; --token-file or WEIR_TOKEN_FILE for the command line)"
            );
            Err(Refusal { status: StatusCode::UNAUTHORIZED, message })
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(entrance: &Entrance, method: &str, headers: &[(&str, &str)]) -> u16 {
        let request = Request::builder().method(method).uri("/v1/status");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        admit(entrance, &parts).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn tcp_request_needs_the_token_and_this_host() {
        let token = Arc::new(Token::new("secret".to_owned()));
        let tcp = Entrance::Tcp { token };
        let good = ("authorization", "Bearer secret");
        for (headers, expected) in [
            (vec![("host", "localhost:9001"), good], 200),
            (vec![("host", "127.0.0.1"), ("authorization", "bearer  secret")], 200),
            (vec![("host", "[::1]:5"), good], 200),
            (vec![("host", "localhost")], 401),
            (vec![("host", "localhost"), ("authorization", "Bearer other")], 401),
            (vec![("host", "localhost"), ("authorization", "Basic secret")], 401),
            (vec![("host", "evil.example:9001"), good], 403),
            (vec![good], 403),
        ] {
            assert_eq!(status(&tcp, "GET", &headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn change_from_a_foreign_page_is_refused() {
        let root = Entrance::Unix { may_administer: true, user: Some(0) };
        for (origin, host, expected) in [
            ("http://localhost:9001", "localhost:9001", 200),
            ("http://localhost:9002", "localhost:9001", 403),
            ("https://evil.example", "localhost:9001", 403),
            ("http://evil.example", "evil.example", 403),
            ("null", "localhost", 403),
        ] {
            let headers = [("origin", origin), ("host", host)];
            assert_eq!(status(&root, "POST", &headers), expected, "{origin}");
            assert_eq!(status(&root, "DELETE", &headers), expected, "{origin}");
            assert_eq!(status(&root, "GET", &headers), 200, "{origin}");
        }
        assert_eq!(status(&root, "POST", &[("host", "localhost")]), 200);
    }

    #[test]
    fn user_without_admin_right_cannot_read() {
        let stranger = Entrance::Unix { may_administer: false, user: Some(65_534) };
        assert_eq!(status(&stranger, "GET", &[("host", "localhost")]), 403);
        assert_eq!(status(&stranger, "DELETE", &[]), 403);
    }
}
