//! `weir volume record`: recording the requests of volumes.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::super::arguments::RecordArguments;
use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output;
use weir_api_types::RecordingCreate;
use weir_replay::trace;

/// Records the requests of volumes into a file.
pub fn record(client: &Client, arguments: RecordArguments) -> Result<(), CommandError> {
    let RecordArguments { volumes, tenant, output: path, seconds, limit } = arguments;
    // The file is opened first, because a recording cannot be repeated. It is emptied only once there is new
    // content.
    let in_file = |error| CommandError::Failed(format!("cannot write '{}': {error}", path.display()));
    let mut file = File::options().create(true).write(true).truncate(false).open(&path).map_err(in_file)?;
    let request = RecordingCreate { volumes, tenant, seconds, limit_bytes: limit.map(|limit| limit.0) };
    let bytes = match client.fetch("/v1/recordings", &request, Duration::from_secs(seconds.into())) {
        Ok(bytes) => bytes,
        Err(error) => {
            remove_if_empty(&path);
            return Err(error);
        }
    };
    let trace = trace::decode(&bytes)
        .map_err(|error| CommandError::Failed(format!("the daemon's answer is not understood: {error}")))?;
    file.set_len(0).and_then(|()| file.write_all(&bytes)).map_err(in_file)?;
    let header = &trace.header;
    let recorded = header.duration_ns as f64 / 1e9;
    output::print(&format!(
        "{} requests of {recorded:.1} s are in '{}'",
        trace.records.len(),
        path.display()
    ))?;
    if header.is_cut_short {
        let words = "cut short: the file has become as large as it may (--limit)";
        output::print(words)?;
    }
    Ok(())
}

fn remove_if_empty(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
        // The file is empty and was just created; it does no harm if it stays.
        let _ = std::fs::remove_file(path);
    }
}
