//! Describes in words what binds a volume, and what would change it.

use weir_qos::{Dimension, Direction, Rate};
use weir_types::{Scope, Throughput};

use crate::reasons::{Binding, Cause, Explanation, NamedGroup, NamedLimit, Situation};
use crate::records::GroupKind;

/// Number of neighbours that are named before the rest is only counted.
const NEIGHBOURS_NAMED_MAX: usize = 4;
/// Mean number of requests under way below which a client gains from sending more requests at a time.
const CONCURRENCY_FEW: f64 = 2.0;

/// The cause that binds the volume, in a sentence.
pub fn summary(explanation: &Explanation) -> String {
    let Explanation { situation, finding, timestamp_ns, .. } = explanation;
    let (volume, place) = (&situation.volume, &situation.place);
    match (finding.cause, &finding.binding) {
        (Cause::Ceiling, Some(binding)) => ceiling(volume, binding, *timestamp_ns),
        (Cause::Ceiling, None) => format!("Volume {volume} waits for a ceiling above it."),
        (Cause::Floors, _) => format!(
            "Volume {volume} waits for drive {} while others go first for their floors: {}.",
            place.drive,
            neighbours(situation, true)
        ),
        (Cause::Queue, _) => format!(
            "Volume {volume} waits in the queue of drive {}, beside {}; its weight {} gives it at least {:.0} % of what floors leave.",
            place.drive,
            neighbours(situation, false),
            place.weight,
            place.portion * 100.0
        ),
        (Cause::Drive, _) => {
            format!("Drive {} takes most of the time of volume {volume}; no limit binds it.", place.drive)
        }
        (Cause::Other, _) => format!(
            "Requests of volume {volume} wait for buffers or for others that touch the same blocks; no limit binds it."
        ),
        (Cause::Nothing, _) => format!(
            "Nothing binds volume {volume}: its clients offer less than it could do ({:.2} requests under way in \
             the mean).",
            situation.concurrency()
        ),
        (Cause::Idle, _) => format!("Nothing binds volume {volume}: no request came."),
    }
}

/// Advice that would change it; `None` if no change is needed.
pub fn advice(explanation: &Explanation) -> Option<String> {
    let Explanation { situation, finding, .. } = explanation;
    let place = &situation.place;
    let is_shallow = situation.concurrency() < CONCURRENCY_FEW;
    match (finding.cause, &finding.binding) {
        (Cause::Ceiling, Some(binding)) => raise(&binding.limit),
        (Cause::Ceiling, None) | (Cause::Idle, _) => None,
        (Cause::Floors, _) if place.has_floor => {
            Some("raise -min-throughput of its policy group, or lower that of the others".to_owned())
        }
        (Cause::Floors, _) => {
            Some("give it a floor with -min-throughput, or lower that of the others".to_owned())
        }
        (Cause::Queue, _) => Some(format!("give it a weight above {} or a floor", place.weight)),
        (Cause::Drive, _) if is_shallow => {
            Some(format!("send more requests at a time, or use a faster drive than {}", place.drive))
        }
        (Cause::Drive, _) => Some(format!("use a faster drive than {}", place.drive)),
        (Cause::Other, _) => {
            Some("send fewer requests at a time, or such that touch different blocks".to_owned())
        }
        (Cause::Nothing, _) => Some("send more requests at a time".to_owned()),
    }
}

/// A rate with its unit.
fn rate(dimension: Dimension, value: u64) -> String {
    let throughput = match dimension.is_bytes() {
        true => Throughput { iops: None, bytes_per_second: Some(value) },
        false => Throughput { iops: Some(value), bytes_per_second: None },
    };
    throughput.to_string()
}

/// The owner of a limit.
fn whose(limit: &NamedLimit) -> String {
    let group = limit.group.as_ref().map(described);
    match (&limit.scope, group) {
        (Scope::Tenant(tenant), Some(group)) => format!("tenant {tenant} ({group})"),
        (Scope::Tenant(tenant), None) => format!("tenant {tenant}"),
        (Scope::Group(_), _) => format!("shared policy group {}", limit.name),
        (Scope::Volume(_), Some(group)) => format!("the volume itself ({group})"),
        (Scope::Volume(_), None) => "the volume itself".to_owned(),
        (Scope::Cgroup(_), Some(group)) => format!("cgroup {} ({group})", limit.name),
        (Scope::Cgroup(_), None) => format!("cgroup {}", limit.name),
    }
}

fn described(group: &NamedGroup) -> String {
    match group.kind {
        GroupKind::Fixed => format!("policy group {}", group.name),
        GroupKind::Adaptive => format!("adaptive policy group {}", group.name),
    }
}

fn ceiling(volume: &str, binding: &Binding, now_ns: u64) -> String {
    let limit = &binding.limit;
    let what = match (limit.limit.dimension.direction(), limit.limit.rate) {
        (None, Rate::Sustained) => "ceiling",
        (None, Rate::Burst) => "burst rate",
        (Some(Direction::Read), Rate::Sustained) => "ceiling on reads",
        (Some(Direction::Read), Rate::Burst) => "burst rate of reads",
        (Some(Direction::Write), Rate::Sustained) => "ceiling on writes",
        (Some(Direction::Write), Rate::Burst) => "burst rate of writes",
    };
    let value = limit.value.map(|value| format!(" {}", rate(limit.limit.dimension, value)));
    let credit = match (limit.limit.rate, limit.credit) {
        (_, None) => String::new(),
        (Rate::Burst, Some(credit)) => format!("; credit is left for {:.1} s", seconds(credit.ns)),
        (Rate::Sustained, Some(_)) => "; the burst credit is used up".to_owned(),
    };
    format!(
        "Volume {volume} is held back by the {what}{} of {}, for {:.1} s so far{credit}.",
        value.unwrap_or_default(),
        whose(limit),
        seconds(now_ns.saturating_sub(binding.since_ns)),
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Advice how to raise a limit.
fn raise(limit: &NamedLimit) -> Option<String> {
    let (group, value) = (limit.group.as_ref()?, limit.value?);
    let value = rate(limit.limit.dimension, value);
    if group.is_built_in {
        return Some(format!("bind it to another group: {} cannot be changed", described(group)));
    }
    let option = match (group.kind, limit.limit.rate, limit.limit.dimension.direction()) {
        (GroupKind::Adaptive, _, _) if limit.limit.dimension.is_bytes() => "--block-size",
        (GroupKind::Adaptive, Rate::Burst, _) => "--peak-iops",
        (GroupKind::Adaptive, Rate::Sustained, _) if limit.credit.is_some() => "--expected-iops",
        (GroupKind::Adaptive, Rate::Sustained, _) => "--peak-iops",
        (GroupKind::Fixed, Rate::Sustained, None) => "--max-throughput",
        (GroupKind::Fixed, Rate::Sustained, Some(Direction::Read)) => "--max-read",
        (GroupKind::Fixed, Rate::Sustained, Some(Direction::Write)) => "--max-write",
        (GroupKind::Fixed, Rate::Burst, None) => "--burst",
        (GroupKind::Fixed, Rate::Burst, Some(Direction::Read)) => "--burst-read",
        (GroupKind::Fixed, Rate::Burst, Some(Direction::Write)) => "--burst-write",
    };
    Some(match group.kind {
        GroupKind::Adaptive => {
            format!("raise {option} of {}, whose ceiling is {value} at this size", described(group))
        }
        GroupKind::Fixed => format!("raise {option} of {} above {value}", described(group)),
    })
}

/// The names of the volume's neighbours on its drive.
fn neighbours(situation: &Situation, only_with_floors: bool) -> String {
    let all = situation.place.neighbours.iter();
    let names: Vec<_> =
        all.filter(|other| other.has_floor || !only_with_floors).map(|other| other.name.as_str()).collect();
    let shown = names.iter().take(NEIGHBOURS_NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NEIGHBOURS_NAMED_MAX) {
        _ if names.is_empty() => "others".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
