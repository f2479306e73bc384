//! gRPC: the way of a call to the function that serves it.
//!
//! Each function blocks, because it asks the daemon and the kernel. So it runs on a thread for such work. While no daemon
//! answers it is tried again, for a while: every call of CSI can be repeated, and a daemon that restarts fails none.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Answer of a function.
pub type Answer<T> = Result<T, Status>;

/// How long a call waits for a daemon that restarts.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A function that serves one call.
struct Served<F> {
    serve: Option<F>,
    wait_max: Duration,
}

impl<Q, A, F> UnaryService<Q> for Served<F>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(&Q) -> Answer<A> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let (serve, wait_max) = (self.serve.take().expect("a call is served once"), self.wait_max);
        Box::pin(async move {
            let asked = request.into_inner();
            let work = move || until_answered(wait_max, || serve(&asked));
            let done = tokio::task::spawn_blocking(work).await;
            done.map_err(|error| Status::internal(error.to_string()))?.map(tonic::Response::new)
        })
    }
}

/// Repeats what finds no daemon.
fn until_answered<A>(wait_max: Duration, serve: impl Fn() -> Answer<A>) -> Answer<A> {
    let begun = Instant::now();
    loop {
        match serve() {
            Err(status) if status.code() == Code::Unavailable && begun.elapsed() < wait_max => {
                std::thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Serves one call, which waits this long for a daemon.
pub async fn unary<Q, A, F>(request: Request, wait_max: Duration, serve: F) -> Response
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
    F: Fn(&Q) -> Answer<A> + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
    grpc.unary(Served { serve: Some(serve), wait_max }, request).await.map(Body::new)
}

/// The answer to a call that the driver does not have.
pub fn unimplemented(path: &str) -> Response {
    Status::unimplemented(format!("{path} is not implemented")).into_http::<Body>()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn call_is_repeated_until_a_daemon_answers() {
        let tries = Cell::new(0);
        let answer = until_answered(WAIT_MAX, || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(Status::unavailable("no daemon")) } else { Ok(tries.get()) }
        });
        assert_eq!(answer.unwrap(), 3);
        let refused = until_answered(WAIT_MAX, || Err::<(), _>(Status::not_found("it")));
        assert_eq!(refused.unwrap_err().code(), Code::NotFound);
        let gone = until_answered(Duration::ZERO, || Err::<(), _>(Status::unavailable("no daemon")));
        assert_eq!(gone.unwrap_err().code(), Code::Unavailable);
    }
}
