//! The daemon's API, asked without any program between: what is measured is the daemon's answer alone.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Asks for a path over a Unix socket; the answer's body, and how long it took to be there as a whole.
pub fn get(socket: &Path, path: &str) -> Result<(String, Duration)> {
    let started = Instant::now();
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let elapsed = started.elapsed();
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of its head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "GET {path}: {}", head.lines().next().unwrap_or_default());
    Ok((body.to_owned(), elapsed))
}
