//! HTTP client of the daemon's API, without another program in between: only the daemon's answer is measured.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Requests a path over a Unix socket. Returns the body of the answer, and the time until it was complete.
pub fn get(socket: &Path, path: &str) -> Result<(String, Duration)> {
    let started = Instant::now();
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
    // Answers in HTTP/1.0 are not chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let elapsed = started.elapsed();
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of its head")?;
    ensure!(
        head.lines().next().is_some_and(|line| line.contains(" 200 ")),
        "GET {path}: {}",
        head.lines().next().unwrap_or_default()
    );
    Ok((body.to_owned(), elapsed))
}

/// Reads all pages of a list, or the one answer of what has no pages. Returns their text, and the time.
pub fn get_all(socket: &Path, path: &str) -> Result<(String, Duration)> {
    const TOKEN: &str = "\"next_page_token\":\"";
    let (mut all, mut elapsed) = get(socket, path)?;
    let mut next = token_after(&all, TOKEN);
    while let Some(token) = next {
        let (page, time) = get(socket, &format!("{path}?page_token={token}"))?;
        next = token_after(&page, TOKEN);
        all.push_str(&page);
        elapsed += time;
    }
    Ok((all, elapsed))
}

fn token_after(text: &str, field: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once(field)?;
    rest.split('"').next().map(str::to_owned)
}

/// Creates a volume without a process for it.
pub fn create_volume(socket: &Path, name: &str, policy: &str) -> Result<()> {
    let body = format!("{{\"name\":\"{name}\",\"size_bytes\":1073741824,\"qos_policy_group\":\"{policy}\"}}");
    let mut stream = UnixStream::connect(socket)?;
    write!(
        stream,
        "POST /v1/tenants/default/volumes HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.lines().next().is_some_and(|line| line.contains(" 201 ")), "cannot make {name}: {answer}");
    Ok(())
}
