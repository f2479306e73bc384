//! HTTP bodies: request bodies with a time limit, and answer bodies that keep their connection busy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use weir_host::budget::Place;
use weir_types::control_bounds::API_BODY_SECONDS_MAX;

/// A request body that must arrive within a time limit.
pub struct Timely<B> {
    body: B,
    until: Pin<Box<Sleep>>,
}

impl<B> Timely<B> {
    /// Wraps a body that nothing was read of.
    pub fn new(body: B) -> Timely<B> {
        Timely { body, until: Box::pin(tokio::time::sleep(Duration::from_secs(API_BODY_SECONDS_MAX))) }
    }
}

impl<B> HttpBody for Timely<B>
where
    B: HttpBody + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let late = || format!("the body was not there within {API_BODY_SECONDS_MAX} s");
        self.until.as_mut().poll(context).map(|()| Some(Err(late().into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Marks a connection as busy, from the head of a request to the end of its answer.
pub struct Busy(Arc<Place>);

impl Busy {
    /// Marks the connection as busy from now on.
    pub fn new(place: Arc<Place>) -> Busy {
        place.set_busy(true);
        Busy(place)
    }

    /// Keeps the connection busy until the end of this body.
    pub fn with(self, body: Body) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
        Last { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set_busy(false);
    }
}

struct Last {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Last {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
