//! `weir qos apply` and `weir qos export`: all policies and bindings as one file.

use std::io::Read;
use std::path::Path;

use super::super::client::Client;
use super::super::errors::CommandError;
use super::super::output;
use crate::policy_file::{lines, parse};
use weir_api_types::{PoliciesApply, PoliciesDifference, PolicySet};
use weir_types::control_bounds::API_POLICIES_BYTES_MAX;

/// Path of all policies in the API.
const PATH: &str = "/v1/policies";

/// Shows the difference between a file and the daemon, then applies the file to all policies and bindings.
pub fn apply(
    client: &Client,
    file: &Path,
    is_dry_run: bool,
    (force, prune): (bool, bool),
) -> Result<(), CommandError> {
    let text = read(file)
        .map_err(|error| CommandError::Failed(format!("cannot read '{}': {error}", file.display())))?;
    let in_file = |error: CommandError| error.within(&format_args!("'{}'", file.display()));
    let put = |dry_run| {
        let request = PoliciesApply {
            policies: parse(&text).map_err(CommandError::Failed)?,
            lines: lines(&text),
            dry_run,
            force,
            prune,
        };
        client.put::<PoliciesDifference>(PATH, &[], &request)
    };
    if !client.options().output.is_for_people() {
        // A program reads the difference once, in the answer to the change.
        return put(is_dry_run).map(|_| ()).map_err(in_file);
    }
    let difference = put(true).map_err(in_file)?;
    for left in &difference.left {
        output::print(&format!("= {left}: not in the file, and stays; --prune removes it"))?;
    }
    if difference.changes.is_empty() {
        return output::print("Everything is as the file says.");
    }
    output::print(&difference.changes.join("\n"))?;
    if !is_dry_run {
        put(false).map_err(in_file)?;
    }
    Ok(())
}

/// Writes all policies and bindings as a file for `qos apply`.
pub fn export(client: &Client) -> Result<(), CommandError> {
    let set: PolicySet = client.get(PATH, &[])?;
    output::print(&yaml_serde::to_string(&set).map_err(CommandError::failed)?)
}

/// Reads the policies and bindings of a file.
pub fn read_file(file: &Path) -> Result<PoliciesApply, CommandError> {
    let failed =
        |error: &dyn std::fmt::Display| CommandError::Failed(format!("'{}': {error}", file.display()));
    let text = read(file).map_err(|error| failed(&error))?;
    let policies = parse(&text).map_err(|error| failed(&error))?;
    Ok(PoliciesApply { policies, lines: lines(&text), dry_run: true, force: false, prune: true })
}

/// Reads a file, or standard input for `-`, up to the size that the daemon accepts.
fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let limit = API_POLICIES_BYTES_MAX as u64 + 1;
    match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(limit).read_to_string(&mut text)?,
        false => std::fs::File::open(file)?.take(limit).read_to_string(&mut text)?,
    };
    if text.len() > API_POLICIES_BYTES_MAX {
        let what = format!("it is longer than {API_POLICIES_BYTES_MAX} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}
