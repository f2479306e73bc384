//! Streamed answers: built piece by piece while the client reads them, in bounded memory.
//!
//! A separate thread writes each answer, so that the API's thread can serve other clients. The writer waits
//! for the client up to a time limit. The number of streamed answers under way is limited, so their total
//! memory is bounded too.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use super::Context;
use super::error::ApiError;
use weir_control::{Control, Outcome};
use weir_types::control_bounds::{
    API_ANSWER_PIECE_BYTES, API_ANSWER_PIECES_AHEAD, API_ANSWER_SECONDS_MAX, API_ANSWER_WAIT_SECONDS_MAX,
    API_SCRAPES_MAX,
};

/// Content type of JSON.
pub(super) const JSON: &str = "application/json";

/// Limits of the number of streamed answers under way.
#[derive(Clone)]
pub(super) struct Streams {
    scrapes: Arc<Semaphore>,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { scrapes: Arc::new(Semaphore::new(API_SCRAPES_MAX)) }
    }
}

/// One part of an answer on its way to the client.
enum Piece {
    Bytes(Bytes),
    /// End of a complete answer.
    End,
}

/// The writer of an answer. It waits until the client has read most of the earlier data.
pub(super) struct Sheet {
    pieces: mpsc::Sender<Piece>,
    runtime: Handle,
    until: Instant,
    bytes: Vec<u8>,
}

impl Sheet {
    fn send(&mut self, piece: Piece) -> io::Result<()> {
        let sent = self.runtime.block_on(timeout_at(self.until, self.pieces.send(piece)));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        self.send(Piece::End)
    }

    /// Writes entries of a list in JSON, with the commas between them.
    pub fn entries<T: Serialize>(
        &mut self,
        entries: impl IntoIterator<Item = T>,
        is_first: &mut bool,
    ) -> io::Result<()> {
        for entry in entries {
            if !std::mem::replace(is_first, false) {
                self.write_all(b",")?;
            }
            serde_json::to_writer(&mut *self, &entry)?;
        }
        Ok(())
    }
}

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= API_ANSWER_PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(API_ANSWER_PIECE_BYTES));
        if bytes.is_empty() { Ok(()) } else { self.send(Piece::Bytes(bytes.into())) }
    }
}

impl std::fmt::Write for Sheet {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.write_all(text.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

/// The client's end of a sheet.
struct Pieces(mpsc::Receiver<Piece>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(task).map(|piece| match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => None,
            // The client must not take an incomplete answer for a complete one.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

impl Context {
    /// Streams an answer: `prepare` collects the data, and `write` writes it.
    pub async fn stream<T: Send + 'static>(
        &self,
        media_type: &'static str,
        prepare: impl FnOnce(&Control) -> Outcome<T> + Send + 'static,
        write: impl FnOnce(&Control, T, &mut Sheet) -> io::Result<()> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let places = self.streams.scrapes.clone();
        let longest = Duration::from_secs(API_ANSWER_WAIT_SECONDS_MAX);
        let Ok(place) = timeout(longest, places.acquire_owned()).await else {
            let message = "too many answers of this kind are being read already; ask again in some seconds";
            return Err(ApiError::busy(message));
        };
        let place = place.map_err(ApiError::unexpected)?;
        let prepared = self.run(prepare).await?;
        let (pieces, read) = mpsc::channel(API_ANSWER_PIECES_AHEAD);
        let until = Instant::now() + Duration::from_secs(API_ANSWER_SECONDS_MAX);
        let mut sheet = Sheet { pieces, runtime: Handle::current(), until, bytes: Vec::new() };
        let control = self.control.clone();
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let written = write(&control, prepared, &mut sheet).and_then(|()| sheet.end());
            if let Err(error) = written {
                tracing::debug!(%error, "an answer was not read to its end");
            }
        });
        Ok(([(header::CONTENT_TYPE, media_type)], Body::new(Pieces(read))).into_response())
    }
}
