//! Parsing and formatting of emulations. This module knows words and units, and nothing of their effect.

use super::{Emulation, EmulationKind, Parameters};
use crate::bounds::EMULATED_PARALLEL_MAX;
use crate::policy::Throughput;
use crate::units::{ByteRate, UnitError, scale, split_number, whole_number, write_whole};

/// Units of times, with their nanoseconds.
const TIME_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Accepted notation of an emulation, for error messages.
fn expected() -> String {
    format!(
        "a list such as iops=21000,bandwidth=250MB/s,latency=200us (iops is required), or a kind of drive \
         ({}), alone or with such a list after it",
        kinds()
    )
}

/// Accepted values where neither `iops` nor a kind is named, for error messages.
pub(super) fn expected_iops() -> String {
    format!("a number of operations per second, which is required unless a kind is told: {}", kinds())
}

fn kinds() -> String {
    EmulationKind::ALL.map(EmulationKind::name).join(", ")
}

impl Emulation {
    /// Parses parameters in any order, like
    /// `iops=21000,bandwidth=250MB/s,latency=200us,seek=8ms,flush=5ms,parallel=32`. A kind's name may come
    /// first, with the parameters that differ from it: `nvme,latency=1ms`.
    ///
    /// Times that are not named are 0, and a flush takes the latency. Other parameters that are not named
    /// have no bound. `none` removes a bound that a kind has.
    ///
    /// # Errors
    /// If neither `iops` nor a kind is named, a parameter is unknown or named twice, or a value is not
    /// accepted.
    pub fn parse(text: &str) -> Result<Emulation, UnitError> {
        let mut parts = text.split(',').map(str::trim).peekable();
        let kind = parts.next_if(|part| !part.contains('='));
        let kind =
            kind.map(|name| EmulationKind::named(name).ok_or_else(|| UnitError::new(name, expected())));
        let (kind, mut parameters) = (kind.transpose()?, Parameters::default());
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| UnitError::new(part, expected()))?;
            if parameters.set(key.trim(), value.trim())? {
                return Err(UnitError::new(text, "a list that names each parameter once"));
            }
        }
        if kind.is_none() && parameters.iops.is_none() {
            return Err(UnitError::new(text, expected()));
        }
        parameters.of(kind)
    }

    /// All parameters, even if they are exactly those of a kind.
    pub fn parameters(&self) -> String {
        let time = |key, ns| format!(",{key}={}", Time(ns));
        let mut text = format!("iops={}", self.iops);
        text.extend(self.bytes_per_second.map(|rate| format!(",bandwidth={}", ByteRate(rate))));
        for (key, ns) in [("latency", self.latency_ns), ("seek", self.seek_ns)] {
            text.extend((ns > 0).then(|| time(key, ns)));
        }
        text.extend(self.flush_ns.map(|ns| time("flush", ns)));
        text.extend(self.parallel.map(|operations| format!(",parallel={operations}")));
        text
    }
}

/// A kind's name if the parameters are exactly those of a kind, otherwise the parameters.
impl std::fmt::Display for Emulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            Some(kind) => kind.fmt(f),
            None => f.write_str(&self.parameters()),
        }
    }
}

impl Parameters {
    /// Sets a parameter from text. Returns whether it was set already.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, UnitError> {
        Ok(match key.to_ascii_lowercase().as_str() {
            "iops" => self.iops.replace(parse_iops(value)?).is_some(),
            "bandwidth" => self.bytes_per_second.replace(parse_bandwidth(value)?).is_some(),
            "latency" => self.latency_ns.replace(parse_time(value)?).is_some(),
            "seek" => self.seek_ns.replace(parse_time(value)?).is_some(),
            "flush" => self.flush_ns.replace(unless_none(value, parse_time)?).is_some(),
            "parallel" => self.parallel.replace(unless_none(value, parse_parallel)?).is_some(),
            _ => {
                let expected = "one of iops, bandwidth, latency, seek, flush and parallel";
                return Err(UnitError::new(key, expected));
            }
        })
    }
}

fn unless_none<T>(text: &str, parse: fn(&str) -> Result<T, UnitError>) -> Result<Option<T>, UnitError> {
    if text.eq_ignore_ascii_case("none") { Ok(None) } else { parse(text).map(Some) }
}

fn parse_iops(text: &str) -> Result<u64, UnitError> {
    let number = text.to_ascii_lowercase();
    let number = number.strip_suffix("iops").unwrap_or(&number).trim_end();
    whole_number(number)
        .ok_or_else(|| UnitError::new(text, "a whole number of operations per second, such as 21000"))
}

fn parse_bandwidth(text: &str) -> Result<Option<u64>, UnitError> {
    match Throughput::parse(text) {
        Ok(Throughput { iops: None, bytes_per_second }) => Ok(bytes_per_second),
        _ => Err(UnitError::new(text, "a bandwidth from 1B/s to 1TB/s with its unit, such as 250MB/s")),
    }
}

fn parse_parallel(text: &str) -> Result<u32, UnitError> {
    let expected = || format!("a number of operations from 1 to {EMULATED_PARALLEL_MAX}, or none");
    whole_number(text).ok_or_else(|| UnitError::new(text, expected()))
}

/// Parses a time, like `200us` or `1.5ms`, in nanoseconds.
///
/// # Errors
/// If the text has no unit, or is not a whole number of nanoseconds.
pub fn parse_time(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError::new(text, "a time with its unit (ns, us, ms or s), such as 200us");
    let (number, unit) = split_number(text).ok_or_else(error)?;
    if unit.is_empty() && number == "0" {
        return Ok(0);
    }
    let unit = unit.to_ascii_lowercase();
    let (_, unit_ns) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    scale(number, *unit_ns).ok_or_else(error)
}

/// A time in nanoseconds, formatted with its unit.
pub(super) struct Time(pub u64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("0s") } else { write_whole(f, self.0, &TIME_UNITS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{EMULATED_TIME_NS_MAX, RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn parameters_read_as_documented() {
        let even = Emulation::even;
        let nvme = EmulationKind::Nvme.emulation();
        let disk = even(100, None, 0);
        for (text, expected) in [
            ("iops=21000", even(21_000, None, 0)),
            ("iops=21000,bandwidth=250MB/s,latency=200us", even(21_000, Some(250_000_000), 200_000)),
            ("Latency = 1.5ms, IOPS=100IOPS", even(100, None, 1_500_000)),
            ("iops=1,bandwidth=none,latency=0", even(1, None, 0)),
            ("bandwidth=1MiB/s,iops=5,latency=10s", even(5, Some(1 << 20), 10_000_000_000)),
            ("iops=100,seek=8.5ms", Emulation { seek_ns: 8_500_000, ..disk }),
            ("seek=0,iops=100,flush=none,parallel=NONE", disk),
            ("iops=100,flush=0,parallel=1", Emulation { flush_ns: Some(0), parallel: Some(1), ..disk }),
            ("parallel=1024,iops=100,Flush=10s", {
                Emulation { flush_ns: Some(10_000 * MS), parallel: Some(1024), ..disk }
            }),
            ("nvme", nvme),
            ("NVMe , latency=1ms", Emulation { latency_ns: MS, ..nvme }),
            ("nvme,iops=7,bandwidth=none,flush=none", even(7, None, nvme.latency_ns)),
            ("hdd-7200,seek=0", Emulation { seek_ns: 0, ..EmulationKind::Hdd7200.emulation() }),
        ] {
            assert_eq!(Emulation::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parse_error_names_value_and_accepted_notation() {
        for (text, words) in [
            ("", "'' is not a list such as iops=21000"),
            ("latency=1ms", "'latency=1ms' is not a list such as"),
            ("latency=1ms", "(iops is required)"),
            ("21000", "'21000' is not a list such as"),
            ("nvm", "or a kind of drive (ebs-io1, ebs-gp2, ebs-standard, hdd-7200, sata-ssd, nvme)"),
            ("iops=5,nvme", "'nvme' is not a list such as"),
            ("nvme,hdd-7200", "'hdd-7200' is not a list such as"),
            ("nvme,iops=0", "'iops=0' is not from 1 to 1000000000"),
            ("nvme,seek=1ms,seek=1ms", "names each parameter once"),
            ("iops=0", "'iops=0' is not from 1 to 1000000000"),
            ("iops=-5", "'-5' is not a whole number of operations per second"),
            ("iops=1e3", "'1e3' is not a whole number"),
            ("iops=+5", "'+5' is not a whole number"),
            ("iops=5,parallel=+1", "'+1' is not a number of operations from 1 to 1024"),
            ("iops=5,iops=6", "names each parameter once"),
            ("iops=5,flush=none,flush=1ms", "names each parameter once"),
            ("iops=5,speed=7", "'speed' is not one of iops, bandwidth, latency, seek, flush and parallel"),
            ("iops=5,bandwidth=250", "'250' is not a bandwidth"),
            ("iops=5,bandwidth=5IOPS", "'5IOPS' is not a bandwidth"),
            ("iops=5,latency=200", "'200' is not a time with its unit"),
            ("iops=5,latency=11s", "'latency=11s' is not from 0s to 10s"),
            ("iops=5,seek=8", "'8' is not a time with its unit"),
            ("iops=5,seek=10001ms", "'seek=10001ms' is not from 0s to 10s"),
            ("iops=5,flush=11s", "'flush=11s' is not from 0s to 10s"),
            ("iops=5,flush=-1ms", "'-1ms' is not a time with its unit"),
            ("iops=5,parallel=0", "'parallel=0' is not from 1 to 1024"),
            ("iops=5,parallel=1025", "'parallel=1025' is not from 1 to 1024"),
            ("iops=5,parallel=2.5", "'2.5' is not a number of operations from 1 to 1024, or none"),
        ] {
            let error = Emulation::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn kind_is_shown_by_name_and_lists_parameters() {
        for kind in EmulationKind::ALL {
            let emulation = kind.emulation();
            assert_eq!(emulation.to_string(), kind.name());
            assert_eq!(Emulation::parse(&emulation.parameters()), Ok(emulation));
        }
        let near = Emulation::parse("nvme,latency=1ms").unwrap();
        assert_eq!(near.to_string(), "iops=400000,bandwidth=3GB/s,latency=1ms,flush=20us");
        let disk = EmulationKind::Hdd7200.emulation();
        let words = "iops=20000,bandwidth=180MB/s,latency=100us,seek=12450us,flush=8300us";
        assert_eq!(disk.parameters(), words);
    }

    prop_compose! {
        fn emulations()(
            iops in 1u64..=RATE_IOPS_MAX,
            bytes_per_second in prop::option::of(1u64..=RATE_BYTES_PER_SECOND_MAX),
            latency_ns in 0u64..=EMULATED_TIME_NS_MAX,
            seek_ns in prop_oneof![Just(0), 0u64..=EMULATED_TIME_NS_MAX],
            flush_ns in prop::option::of(prop_oneof![Just(0), 0u64..=EMULATED_TIME_NS_MAX]),
            parallel in prop::option::of(1u32..=EMULATED_PARALLEL_MAX),
        ) -> Emulation {
            Emulation { iops, bytes_per_second, latency_ns, seek_ns, flush_ns, parallel }
        }
    }

    proptest! {
        #[test]
        fn formatted_emulations_parse_back(written in emulations()) {
            prop_assert_eq!(Emulation::parse(&written.to_string()), Ok(written));
        }

        #[test]
        fn named_parameters_override_the_kind(written in emulations(), kind in 0usize..6) {
            // A parameter that is not written is not replaced, so its absence is written too.
            let text = format!("{},{}", EmulationKind::ALL[kind], written.parameters());
            let absent = [
                (written.bytes_per_second.is_none(), ",bandwidth=none"),
                (written.latency_ns == 0, ",latency=0"),
                (written.seek_ns == 0, ",seek=0"),
                (written.flush_ns.is_none(), ",flush=none"),
                (written.parallel.is_none(), ",parallel=none"),
            ];
            let words = absent.into_iter().filter_map(|(is_absent, words)| is_absent.then_some(words));
            prop_assert_eq!(Emulation::parse(&(text + &words.collect::<String>())), Ok(written));
        }
    }
}
