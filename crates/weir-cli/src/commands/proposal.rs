//! Commands that `weir qos explain` proposes, and the volumes that such a command concerns too.
//!
//! This module decides from objects that were read before. It sends no requests.

use weir_types::Throughput;

use weir_api_types::{
    AdaptivePolicyGroup, AdaptiveTerms, BindingCause, LevelScope, LimitRate, PolicyGroup, PolicyLimits,
    Rates, Volume, VolumeExplanation,
};

/// Factor by which a proposal raises a limit or a weight.
const FACTOR: u64 = 2;
/// Number of volumes that are named before the rest is only counted.
const VOLUMES_NAMED_MAX: usize = 4;
/// Origin of policy groups that can be changed.
const USER_DEFINED: &str = "user-defined";

/// A policy group of either kind.
#[derive(Clone, Debug)]
pub enum Group {
    /// A group with fixed terms.
    Fixed(Box<PolicyGroup>),
    /// A group whose terms follow the size of the volume.
    Adaptive(Box<AdaptivePolicyGroup>),
}

/// The command that would remove the cause; `None` if no command would.
pub fn command(explanation: &VolumeExplanation, group: &Group) -> Option<String> {
    let (noun, name, options) = match group {
        Group::Fixed(group) => ("policy-group", &group.name, fixed_options(explanation, group)?),
        Group::Adaptive(group) if group.class == USER_DEFINED => {
            ("adaptive-policy-group", &group.name, adaptive_options(explanation, &group.terms)?)
        }
        Group::Adaptive(_) => return None,
    };
    let tenant = match explanation.tenant.as_str() {
        weir_types::name::DEFAULT_TENANT => String::new(),
        tenant => format!(" --tenant {tenant}"),
    };
    Some(format!("weir {noun} modify {name}{tenant} {options}"))
}

fn fixed_options(explanation: &VolumeExplanation, group: &PolicyGroup) -> Option<String> {
    match explanation.cause {
        BindingCause::Ceiling => ceiling_options(explanation, group),
        BindingCause::Queue => Some(format!("--weight {}", u64::from(group.terms.weight) * FACTOR)),
        BindingCause::Floors => floor_option(explanation, group),
        _ => None,
    }
}

/// Direction of a limit: the suffixes of the options, and the rates in a set of limits.
fn directed(limit: &str, limits: PolicyLimits) -> (&'static str, &'static str, Rates) {
    match limit {
        _ if limit.starts_with("read_") => ("--max-read", "--burst-read", limits.read),
        _ if limit.starts_with("write_") => ("--max-write", "--burst-write", limits.write),
        _ => ("--max-throughput", "--burst", limits.total),
    }
}

/// The options that raise the ceiling that binds. An option replaces both rates of its direction, so the other
/// rate is named too.
fn ceiling_options(explanation: &VolumeExplanation, group: &PolicyGroup) -> Option<String> {
    let (limit, value) = (explanation.limit.as_deref()?, explanation.value?);
    let is_bytes = limit.ends_with("bytes_per_second");
    let raised = value.checked_mul(FACTOR)?;
    let with = |rates: Rates| match is_bytes {
        true => Throughput { bytes_per_second: Some(raised), ..Throughput::from(rates) },
        false => Throughput { iops: Some(raised), ..Throughput::from(rates) },
    };
    let burst_limits = group.terms.burst.map(|burst| burst.rates).unwrap_or_default();
    let (_, burst_option, burst) = directed(limit, burst_limits);
    if explanation.rate == Some(LimitRate::Burst) {
        return Some(format!("{burst_option} {}", with(burst)));
    }
    let (option, _, ceilings) = directed(limit, group.terms.limits);
    let current = if is_bytes { burst.bytes_per_second } else { burst.iops };
    // A burst rate below the ceiling would be refused.
    let burst_too =
        current.filter(|current| *current < raised).map(|_| format!(" {burst_option} {}", with(burst)));
    Some(format!("{option} {}{}", with(ceilings), burst_too.unwrap_or_default()))
}

/// The option that raises the floor, or gives one of twice the rate that the volume has now.
fn floor_option(explanation: &VolumeExplanation, group: &PolicyGroup) -> Option<String> {
    let floor = Throughput::from(group.terms.floor);
    let seconds = explanation.interval_ns as f64 / 1e9;
    let iops_now = (explanation.operations as f64 / seconds).ceil() as u64;
    let raised = match (floor.iops, floor.bytes_per_second) {
        (Some(iops), _) => Throughput { iops: iops.checked_mul(FACTOR), bytes_per_second: None },
        (None, Some(bytes)) => Throughput { iops: None, bytes_per_second: bytes.checked_mul(FACTOR) },
        (None, None) => Throughput { iops: iops_now.max(1).checked_mul(FACTOR), bytes_per_second: None },
    };
    let ceiling = Throughput::from(group.terms.limits.total);
    let capped = Throughput {
        iops: raised.iops.map(|iops| iops.min(ceiling.iops.unwrap_or(u64::MAX))),
        bytes_per_second: raised
            .bytes_per_second
            .map(|bytes| bytes.min(ceiling.bytes_per_second.unwrap_or(u64::MAX))),
    };
    (capped != floor).then(|| format!("--min-throughput {capped}"))
}

/// The options that raise the ceiling of an adaptive policy group.
fn adaptive_options(explanation: &VolumeExplanation, terms: &AdaptiveTerms) -> Option<String> {
    if explanation.cause != BindingCause::Ceiling {
        return None;
    }
    if explanation.limit.as_deref()?.ends_with("bytes_per_second") {
        return Some("--block-size any".to_owned());
    }
    let peak = terms.peak_iops_per_tb.checked_mul(FACTOR)?;
    let is_expected = explanation.rate == Some(LimitRate::Sustained) && explanation.credit_ns.is_some();
    let expected = terms.expected_iops_per_tb.checked_mul(FACTOR)?;
    Some(match is_expected {
        true if expected > terms.peak_iops_per_tb => {
            format!("--expected-iops {expected}IOPS/TB --peak-iops {peak}IOPS/TB")
        }
        true => format!("--expected-iops {expected}IOPS/TB"),
        false => format!("--peak-iops {peak}IOPS/TB"),
    })
}

/// The other volumes that the limit binds too, in words; `None` if there are none.
pub fn sharers(explanation: &VolumeExplanation, volumes: &[Volume]) -> Option<String> {
    let (scope, name) = (explanation.scope?, explanation.name.as_deref()?);
    let is_bound = |volume: &&Volume| {
        let has_level =
            || volume.policy.levels.iter().any(|level| level.scope == scope && level.name == name);
        let is_other = volume.name != explanation.volume;
        is_other && volume.tenant == explanation.tenant && (scope == LevelScope::Tenant || has_level())
    };
    let names: Vec<&str> = volumes.iter().filter(is_bound).map(|volume| volume.name.as_str()).collect();
    counted(&names)
}

/// The other volumes that are bound to the same policy group without sharing its limits, in words.
pub fn alike(explanation: &VolumeExplanation, group: &Group, volumes: &[Volume]) -> Option<String> {
    let id = match group {
        Group::Fixed(group) => group.id,
        Group::Adaptive(group) => group.id,
    };
    let is_bound = |volume: &&Volume| {
        let groups = [&volume.qos_policy_group, &volume.qos_adaptive_policy_group];
        let is_other = volume.name != explanation.volume || volume.tenant != explanation.tenant;
        is_other && groups.into_iter().flatten().any(|bound| bound.id == id)
    };
    let names: Vec<&str> = volumes.iter().filter(is_bound).map(|volume| volume.name.as_str()).collect();
    counted(&names)
}

fn counted(names: &[&str]) -> Option<String> {
    let shown = names.iter().take(VOLUMES_NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(VOLUMES_NAMED_MAX) {
        _ if names.is_empty() => None,
        0 => Some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn explained(changes: Value) -> VolumeExplanation {
        let mut explanation = json!({
            "volume": "v1", "tenant": "default", "timestamp_ns": 0, "interval_ns": 2_000_000_000u64,
            "cause": "ceiling", "scope": "policy_group", "name": "gold", "policy_group": "gold",
            "limit": "iops", "rate": "sustained", "value": 10_000, "summary": "Volume v1 is held back.",
            "operations": 2000, "concurrency": 1.0,
            "shares": {"delayed": 1.0, "floors": 0.0, "queue": 0.0, "drive": 0.0, "other": 0.0},
            "limits": [], "drive": "d1", "weight": 100, "portion": 1.0, "neighbours": [],
        });
        for (field, value) in changes.as_object().unwrap() {
            explanation[field] = value.clone();
        }
        serde_json::from_value(explanation).unwrap()
    }

    fn rates(text: &str) -> Rates {
        Rates::from(Throughput::parse(text).unwrap())
    }

    fn gold(terms: weir_api_types::PolicyTerms) -> Group {
        Group::Fixed(Box::new(PolicyGroup {
            id: uuid::Uuid::nil(),
            number: 1,
            tenant: "default".to_owned(),
            name: "gold".to_owned(),
            class: USER_DEFINED.to_owned(),
            terms,
            parent: None,
            is_shared: true,
            workloads: 2,
            version: 1,
            created_at: jiff::Timestamp::UNIX_EPOCH,
        }))
    }

    fn terms(total: &str, burst: Option<&str>) -> weir_api_types::PolicyTerms {
        let limits = |text: &str| PolicyLimits { total: rates(text), ..PolicyLimits::default() };
        let burst = burst.map(|text| weir_api_types::BurstTerms {
            rates: limits(text),
            seconds: 60,
            initial_credit: weir_api_types::InitialCredit::Empty,
        });
        let plain = weir_api_types::PolicyTerms::from(weir_types::Terms::default());
        weir_api_types::PolicyTerms { limits: limits(total), burst, ..plain }
    }

    #[test]
    fn proposal_is_a_command_that_raises_the_binding_limit() {
        for (changes, group, expected) in [
            (json!({}), terms("10000IOPS", None), "weir policy-group modify gold --max-throughput 20000IOPS"),
            (
                json!({}),
                terms("10000IOPS,300MB/s", None),
                "weir policy-group modify gold --max-throughput 20000IOPS,300MB/s",
            ),
            (
                json!({"limit": "bytes_per_second", "value": 300_000_000, "tenant": "svm01"}),
                terms("300MB/s", None),
                "weir policy-group modify gold --tenant svm01 --max-throughput 600MB/s",
            ),
            (
                json!({"limit": "read_iops", "value": 60}),
                terms("none", None),
                "weir policy-group modify gold --max-read 120IOPS",
            ),
            (
                json!({}),
                terms("10000IOPS", Some("15000IOPS")),
                "weir policy-group modify gold --max-throughput 20000IOPS --burst 20000IOPS",
            ),
            (
                json!({"rate": "burst", "value": 15_000}),
                terms("10000IOPS", Some("15000IOPS")),
                "weir policy-group modify gold --burst 30000IOPS",
            ),
            (json!({"cause": "queue"}), terms("none", None), "weir policy-group modify gold --weight 200"),
            (
                json!({"cause": "floors"}),
                terms("1500IOPS", None),
                "weir policy-group modify gold --min-throughput 1500IOPS",
            ),
        ] {
            let proposed = command(&explained(changes), &gold(group));
            assert_eq!(proposed.as_deref(), Some(expected));
            let words = expected.split(' ').map(std::ffi::OsString::from);
            assert!(crate::parse(words).is_ok(), "{expected} can be pasted");
        }
        for cause in ["drive", "other", "nothing", "idle"] {
            assert_eq!(
                command(&explained(json!({"cause": cause})), &gold(terms("none", None))),
                None,
                "{cause}"
            );
        }
    }

    #[test]
    fn proposal_of_an_adaptive_group_names_its_options() {
        let adaptive = |class: &str| {
            let terms = json!({
                "expected_iops_per_tb": 1000, "peak_iops_per_tb": 1500, "expected_space": "allocated-space",
                "peak_space": "used-space", "absolute_iops_min": 75, "peak_mode": "credits", "burst_seconds": 60,
            });
            Group::Adaptive(Box::new(AdaptivePolicyGroup {
                id: uuid::Uuid::nil(),
                number: 1,
                tenant: "default".to_owned(),
                name: "grows".to_owned(),
                class: class.to_owned(),
                terms: serde_json::from_value(terms).unwrap(),
                workloads: 1,
                version: 1,
                created_at: jiff::Timestamp::UNIX_EPOCH,
            }))
        };
        let noun = "weir adaptive-policy-group modify grows";
        for (changes, expected) in [
            (json!({}), "--peak-iops 3000IOPS/TB"),
            (json!({"credit_ns": 0}), "--expected-iops 2000IOPS/TB --peak-iops 3000IOPS/TB"),
            (json!({"limit": "bytes_per_second"}), "--block-size any"),
        ] {
            let proposed = command(&explained(changes), &adaptive(USER_DEFINED)).unwrap();
            assert_eq!(proposed, format!("{noun} {expected}"));
            assert!(crate::parse(proposed.split(' ').map(std::ffi::OsString::from)).is_ok(), "{proposed}");
        }
        assert_eq!(command(&explained(json!({})), &adaptive("preset")), None, "built-in groups never change");
    }

    #[test]
    fn few_sharers_are_named_and_many_are_counted() {
        assert_eq!(counted(&[]), None);
        assert_eq!(counted(&["v2", "v3"]).as_deref(), Some("v2, v3"));
        assert_eq!(counted(&["a", "b", "c", "d", "e", "f"]).as_deref(), Some("a, b, c, d and 2 more"));
    }
}
