//! `weir qos apply` and `weir qos export`: all policies and bindings as one file.

use std::io::Read;
use std::path::Path;

use super::super::arguments::Format;
use super::super::client::{Client, CommandError};
use super::super::output;
use weir_api_types::{PoliciesApply, PoliciesDifference, PolicySet, PolicySetLines};
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
        let request = PoliciesApply { policies: parse(&text)?, lines: lines(&text), dry_run, force, prune };
        client.put::<PoliciesDifference>(PATH, &[], &request)
    };
    if client.options().output != Format::Table {
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

/// Reads the YAML; an error names the line.
fn parse(text: &str) -> Result<PolicySet, CommandError> {
    yaml_serde::from_str(text).map_err(|error| CommandError::Failed(error.to_string()))
}

/// The lines on which the entries of each section begin. Only a section in block style, with each entry on
/// its own dash, has lines. Errors about other entries name the number of the entry alone.
fn lines(text: &str) -> PolicySetLines {
    let mut lines = PolicySetLines::default();
    let mut section: Option<&mut Vec<u32>> = None;
    let mut indent = None;
    for (line, number) in text.lines().zip(1u32..) {
        let content = line.trim_start();
        let depth = line.len() - content.len();
        if depth == 0 && !content.is_empty() && !content.starts_with(['-', '#']) {
            indent = None;
            section = match content.split(':').next().unwrap_or_default().trim_matches(['"', '\'', ' ']) {
                "tenants" => Some(&mut lines.tenants),
                "policy_groups" => Some(&mut lines.policy_groups),
                "adaptive_policy_groups" => Some(&mut lines.adaptive_policy_groups),
                "volumes" => Some(&mut lines.volumes),
                "background_policies" => Some(&mut lines.background_policies),
                _ => None,
            };
        } else if content == "-" || content.starts_with("- ") {
            let is_entry = *indent.get_or_insert(depth) == depth;
            if let Some(section) = section.as_deref_mut().filter(|_| is_entry) {
                section.push(number);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# All policies.
tenants:
  - name: svm01
    default_policy_group: extreme

policy_groups:
- name: policy1
  limits:
    total: {iops: 1000}
# A comment.
-
  name: policy2
adaptive_policy_groups: []
volumes:
    - {name: vol1, qos_policy_group: policy1}
    - name: vol2
";

    #[test]
    fn entries_are_found_at_their_lines() {
        let lines = lines(FILE);
        assert_eq!((lines.tenants, lines.policy_groups), (vec![3], vec![7, 11]));
        assert_eq!((lines.adaptive_policy_groups, lines.volumes), (vec![], vec![15, 16]));
        let set = parse(FILE).unwrap();
        assert_eq!(set.policy_groups.unwrap().len(), 2);
        assert_eq!(set.adaptive_policy_groups.unwrap().len(), 0);
    }

    #[test]
    fn parse_error_names_the_line() {
        for (from, to, words) in [
            ("iops: 1000", "iops: many", "line 9"),
            ("name: policy2", "nam: policy2", "unknown field `nam`"),
            ("volumes:", "volumse:", "unknown field `volumse`"),
            ("default_policy_group: extreme", "default_policy_group: [", "line"),
        ] {
            let error = parse(&FILE.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(" line "), "{error}");
        }
    }
}
