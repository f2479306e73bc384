//! Writes a proposed change of a policy group as a command that can be pasted.

use weir_types::Throughput;

use weir_api_types::{
    AdaptiveModify, LimitsModify, NamedVolumes, PolicyGroupKind, PolicyGroupModify, Proposal,
};

/// Number of volumes that are named before the rest is only counted.
const VOLUMES_NAMED_MAX: usize = 4;

/// The command that makes the change.
pub fn command(tenant: &str, proposal: &Proposal) -> String {
    let noun = match proposal.kind {
        PolicyGroupKind::Fixed => "policy-group",
        PolicyGroupKind::Adaptive => "adaptive-policy-group",
    };
    let tenant = match tenant {
        weir_types::name::DEFAULT_TENANT => String::new(),
        tenant => format!(" --tenant {tenant}"),
    };
    let terms = proposal.adaptive.as_ref().and_then(|change| change.terms);
    let fixed = proposal.fixed.as_ref().map(fixed_options).unwrap_or_default();
    let options: Vec<String> = fixed.into_iter().chain(terms.iter().flat_map(adaptive_options)).collect();
    format!("weir {noun} modify {}{tenant} {}", proposal.policy_group, options.join(" "))
}

fn fixed_options(change: &PolicyGroupModify) -> Vec<String> {
    let ceilings = ["--max-throughput", "--max-read", "--max-write"];
    let bursts = ["--burst", "--burst-read", "--burst-write"];
    let mut options = limit_options(change.limits, ceilings);
    options.extend(limit_options(change.burst.rates, bursts));
    options.extend(change.floor.map(|floor| format!("--min-throughput {}", Throughput::from(floor))));
    options.extend(change.weight.map(|weight| format!("--weight {weight}")));
    options
}

fn limit_options(limits: LimitsModify, names: [&str; 3]) -> Vec<String> {
    let rates = [limits.total, limits.read, limits.write];
    let given = names.into_iter().zip(rates).filter_map(|(name, rates)| Some((name, rates?)));
    given.map(|(name, rates)| format!("{name} {}", Throughput::from(rates))).collect()
}

fn adaptive_options(change: &AdaptiveModify) -> Vec<String> {
    let rate = |name: &str, iops: Option<u64>| iops.map(|iops| format!("{name} {iops}IOPS/TB"));
    let bound = |name: &str, iops: Option<u64>| iops.map(|iops| format!("{name} {iops}"));
    let bounds = [
        bound("--absolute-min-iops", change.absolute_iops_min),
        bound("--ceiling-iops-max", change.ceiling_iops_max),
    ];
    let any = change.block_size_bytes.filter(|bytes| *bytes == 0).map(|_| "--block-size any".to_owned());
    let rates =
        [rate("--expected-iops", change.expected_iops_per_tb), rate("--peak-iops", change.peak_iops_per_tb)];
    rates.into_iter().chain(bounds).chain([any]).flatten().collect()
}

/// Volumes in words: the first few, and the number of the others; `None` if there are none.
pub fn in_words(volumes: &NamedVolumes) -> Option<String> {
    let shown = volumes.names.iter().take(VOLUMES_NAMED_MAX);
    let names = shown.clone().map(String::as_str).collect::<Vec<_>>().join(", ");
    match volumes.count.saturating_sub(shown.len() as u64) {
        _ if names.is_empty() => None,
        0 => Some(names),
        more => Some(format!("{names} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn proposal(kind: &str, change: Value) -> Proposal {
        let other_volumes = json!({"count": 0, "names": []});
        let mut proposal = json!({"policy_group": "gold", "kind": kind, "other_volumes": other_volumes});
        proposal[kind] = change;
        serde_json::from_value(proposal).unwrap()
    }

    fn check(tenant: &str, proposal: &Proposal, expected: &str) {
        let command = command(tenant, proposal);
        assert_eq!(command, expected);
        let words = command.split(' ').map(std::ffi::OsString::from);
        assert!(crate::parse(words).is_ok(), "{command} can be pasted");
    }

    #[test]
    fn proposal_is_a_command_that_can_be_pasted() {
        let iops = |iops: u64| json!({"iops": iops});
        for (change, options) in [
            (json!({"limits": {"total": iops(20_000)}}), "--max-throughput 20000IOPS"),
            (
                json!({"limits": {"total": {"iops": 20_000, "bytes_per_second": 300_000_000}}}),
                "--max-throughput 20000IOPS,300MB/s",
            ),
            (json!({"limits": {"read": iops(120)}}), "--max-read 120IOPS"),
            (json!({"limits": {"write": {"bytes_per_second": 5000}}}), "--max-write 5kB/s"),
            (
                json!({"limits": {"total": iops(20)}, "burst": {"rates": {"total": iops(30)}}}),
                "--max-throughput 20IOPS --burst 30IOPS",
            ),
            (json!({"burst": {"rates": {"read": iops(30)}}}), "--burst-read 30IOPS"),
            (json!({"weight": 200}), "--weight 200"),
            (json!({"floor": iops(1500)}), "--min-throughput 1500IOPS"),
        ] {
            check("default", &proposal("fixed", change), &format!("weir policy-group modify gold {options}"));
        }
        let change = proposal("fixed", json!({"weight": 7}));
        check("svm01", &change, "weir policy-group modify gold --tenant svm01 --weight 7");
    }

    #[test]
    fn proposal_of_an_adaptive_group_names_its_options() {
        for (terms, options) in [
            (json!({"peak_iops_per_tb": 3000}), "--peak-iops 3000IOPS/TB"),
            (
                json!({"expected_iops_per_tb": 2000, "peak_iops_per_tb": 3000}),
                "--expected-iops 2000IOPS/TB --peak-iops 3000IOPS/TB",
            ),
            (json!({"absolute_iops_min": 500}), "--absolute-min-iops 500"),
            (json!({"ceiling_iops_max": 900}), "--ceiling-iops-max 900"),
            (json!({"block_size_bytes": 0}), "--block-size any"),
        ] {
            let proposal = proposal("adaptive", json!({"terms": terms}));
            check("default", &proposal, &format!("weir adaptive-policy-group modify gold {options}"));
        }
    }

    #[test]
    fn few_volumes_are_named_and_many_are_counted() {
        let named = |count: u64, names: &str| {
            let names = names.split_terminator(' ').map(str::to_owned).collect();
            in_words(&NamedVolumes { count, names })
        };
        assert_eq!(named(0, ""), None);
        assert_eq!(named(2, "v2 v3").as_deref(), Some("v2, v3"));
        assert_eq!(named(1000, "a b c d e f").as_deref(), Some("a, b, c, d and 996 more"));
    }
}
