//! Policy file: all policies and bindings as YAML. This module reads text and knows no file.

use weir_api_types::{PolicySet, PolicySetLines};

/// Reads the YAML of a policy file.
///
/// # Errors
/// The fault and its line.
pub fn parse(text: &str) -> Result<PolicySet, String> {
    yaml_serde::from_str(text).map_err(|error| error.to_string())
}

/// The lines on which the entries of each section begin. Only a section in block style, with each entry on
/// its own dash, has lines. Errors about other entries name the number of the entry alone.
pub fn lines(text: &str) -> PolicySetLines {
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
            let error = parse(&FILE.replace(from, to)).unwrap_err();
            assert!(error.contains(words) && error.contains(" line "), "{error}");
        }
    }
}
