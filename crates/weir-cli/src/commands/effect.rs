//! Output of `volume show` about the policies of a volume.

use serde_json::Value;
use weir_types::Throughput;

use super::policy;
use weir_api_types::{
    BurstTerms, Charges, EffectiveField, LevelScope, OperationSize, PolicyLevel, Rates, VolumePolicy,
};

/// The policy levels, then every effective field with its origin.
pub fn fields(policy: &VolumePolicy) -> Vec<(&'static str, String)> {
    let mut fields: Vec<_> = policy.levels.iter().map(|level| ("Policy Level", describe(level))).collect();
    let ceilings = [
        ("Ceiling", "ceiling_iops", "ceiling_bytes_per_second"),
        ("Read Ceiling", "ceiling_read_iops", "ceiling_read_bytes_per_second"),
        ("Write Ceiling", "ceiling_write_iops", "ceiling_write_bytes_per_second"),
        ("Floor", "floor_iops", "floor_bytes_per_second"),
    ];
    let get = |name: &str| policy.effective.get(name);
    for (label, iops, bytes_per_second) in ceilings {
        let text = both(get(iops), get(bytes_per_second));
        let is_always = matches!(label, "Ceiling" | "Floor");
        match text.is_empty() {
            false => fields.push((label, text)),
            true if is_always => fields.push((label, "none (default)".to_owned())),
            true => {}
        }
    }
    for (label, name) in
        [("Burst", "burst"), ("Weight", "weight"), ("IOPS Size", "operation_size"), ("Charges", "charges")]
    {
        fields.extend(get(name).map(|field| (label, other(name, field))));
    }
    fields
}

/// A value with its origin.
fn from_origin(value: &str, origin: &str) -> String {
    if origin == "default" { format!("{value} (default)") } else { format!("{value} from {origin}") }
}

/// The rates in both dimensions with their origin, which is shown once if both have the same.
fn both(iops: Option<&EffectiveField>, bytes_per_second: Option<&EffectiveField>) -> String {
    let value = |field: Option<&EffectiveField>| field.and_then(|field| field.value.as_u64());
    let one = |field: Option<&EffectiveField>, iops: Option<u64>, bytes_per_second: Option<u64>| {
        let field = field.filter(|_| iops.or(bytes_per_second).is_some())?;
        let rates = Throughput { iops, bytes_per_second };
        Some(from_origin(&rates.to_string(), &field.origin))
    };
    let (count, bytes) = (value(iops), value(bytes_per_second));
    let origin = |field: Option<&EffectiveField>| field.map(|field| field.origin.clone());
    if count.is_some() && bytes.is_some() && origin(iops) == origin(bytes_per_second) {
        return one(iops, count, bytes).unwrap_or_default();
    }
    let parts = [one(iops, count, None), one(bytes_per_second, None, bytes)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn other(name: &str, field: &EffectiveField) -> String {
    // A daemon of another version may send an unknown value; the value is shown unchanged.
    let read = |value: &Value| match name {
        "burst" if value.is_null() => Some("none".to_owned()),
        "burst" => serde_json::from_value(value.clone()).ok().map(burst),
        "operation_size" => {
            serde_json::from_value::<OperationSize>(value.clone()).ok().map(policy::operation_size)
        }
        "charges" => serde_json::from_value::<Charges>(value.clone()).ok().map(policy::charges),
        _ => None,
    };
    let text = read(&field.value).unwrap_or_else(|| field.value.to_string());
    from_origin(&text, &field.origin)
}

fn burst(burst: BurstTerms) -> String {
    let directions = [("", burst.rates.total), ("reads ", burst.rates.read), ("writes ", burst.rates.write)];
    let set = directions.into_iter().filter(|(_, rates)| *rates != Rates::default());
    let rates: Vec<_> = set.map(|(label, rates)| format!("{label}{}", Throughput::from(rates))).collect();
    format!("{} for {}s", rates.join(", "), burst.seconds)
}

fn describe(level: &PolicyLevel) -> String {
    let scope = match level.scope {
        LevelScope::Tenant => "tenant",
        LevelScope::PolicyGroup => "policy group",
        LevelScope::Volume => "volume",
        LevelScope::Cgroup => "cgroup",
    };
    let ceiling = Throughput::from(level.terms.limits.total);
    let says = match (&level.origin, ceiling.is_unlimited()) {
        (None, _) => "no terms of its own".to_owned(),
        (Some(_), true) => format!("no ceiling, weight {}", level.terms.weight),
        (Some(_), false) => format!("ceiling {ceiling}, weight {}", level.terms.weight),
    };
    format!("{scope} {}: {says}", level.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_api_types::PolicyTerms;

    #[test]
    fn every_field_is_shown_with_its_origin() {
        let terms = PolicyTerms::from(weir_types::Terms::default());
        let level = |scope, name: &str, origin: Option<&str>| PolicyLevel {
            scope,
            name: name.to_owned(),
            origin: origin.map(str::to_owned),
            terms,
        };
        let field = |value, origin: &str| EffectiveField { value, origin: origin.to_owned() };
        let burst_value =
            json!({"rates": {"total": {"iops": 2000}}, "seconds": 60, "initial_credit": "empty"});
        let policy = VolumePolicy {
            levels: vec![
                level(LevelScope::Tenant, "svm01", Some("policy group all of tenant svm01")),
                level(LevelScope::Volume, "vol1", None),
            ],
            effective: [
                ("ceiling_iops", field(json!(1000), "policy group policy1")),
                ("ceiling_bytes_per_second", field(json!(300_000_000), "tenant svm01")),
                ("ceiling_read_iops", field(Value::Null, "default")),
                ("burst", field(burst_value, "policy group policy1")),
                ("weight", field(json!(100), "default")),
                ("operation_size", field(json!({"bytes": 4096}), "policy group policy1")),
                ("charges", field(json!({"discard": 1, "zeroes": 1, "flush": 0}), "default")),
            ]
            .into_iter()
            .map(|(name, field)| (name.to_owned(), field))
            .collect(),
        };
        let pair = |origin| field(json!(5), origin);
        let together = both(Some(&pair("tenant x")), Some(&pair("tenant x")));
        assert_eq!(together, "5IOPS,5B/s from tenant x");
        let expected = [
            ("Policy Level", "tenant svm01: no ceiling, weight 100"),
            ("Policy Level", "volume vol1: no terms of its own"),
            ("Ceiling", "1000IOPS from policy group policy1, 300MB/s from tenant svm01"),
            ("Floor", "none (default)"),
            ("Burst", "2000IOPS for 60s from policy group policy1"),
            ("Weight", "100 (default)"),
            ("IOPS Size", "4KiB from policy group policy1"),
            ("Charges", "discard=1,zeroes=1,flush=0 (default)"),
        ];
        assert_eq!(fields(&policy), expected.map(|(label, text)| (label, text.to_owned())));
    }
}
