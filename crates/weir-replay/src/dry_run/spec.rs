//! The notation of made-up loads: `vol1:depth=32,size=4KiB,read=70%;svm01/vol2:depth=4,size=64KiB,think=1ms`.

use std::ops::RangeInclusive;

use weir_types::bounds::{
    CONNECTION_REQUESTS_MAX, CONNECTIONS_SHARED_PER_REACTOR_MAX, REQUEST_BYTES_MAX, VOLUME_SIZE_BYTES_MAX,
};
use weir_types::emulation::parse_time;
use weir_types::units::{Size, whole_number};
use weir_types::{Emulation, Name, Scope, Terms, VolumeId};

use crate::trace::{Header, TraceDrive, TraceLevel, TraceVolume};
use weir_types::control_bounds::{MADE_UP_REQUESTS_MAX, RECORDING_VOLUMES_MAX};
use weir_types::name::DEFAULT_TENANT;

/// The complete accepted notation.
const EXPECTED: &str = "VOLUME:depth=N,size=SIZE,read=PERCENT,think=TIME,connections=N,capacity=SIZE, \
    each of them optional, and several volumes with ';' between them";

/// Largest think time, in nanoseconds: one hour.
const THINK_NS_MAX: u64 = 3_600_000_000_000;

/// Made-up loads of some volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The load of each volume.
    pub loads: Vec<VolumeLoad>,
}

/// The load of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLoad {
    /// Tenant of the volume.
    pub tenant: Name,
    /// Name of the volume.
    pub name: Name,
    /// Requests that each connection keeps open.
    pub depth: u32,
    /// Bytes of each request.
    pub bytes: u32,
    /// Percentage of requests that read.
    pub read_percent: u32,
    /// Time from an answer to the next request, in nanoseconds.
    pub think_ns: u64,
    /// Number of connections.
    pub connections: u32,
    /// Size of the volume in bytes, which adaptive policies follow. All of it is in use.
    pub capacity_bytes: u64,
}

impl Spec {
    /// Parses made-up loads.
    ///
    /// # Errors
    /// The first error in the text, with the accepted notation.
    pub fn parse(text: &str) -> Result<Spec, String> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let loads = parts.map(VolumeLoad::parse).collect::<Result<Vec<_>, _>>()?;
        if !(1..=RECORDING_VOLUMES_MAX).contains(&loads.len()) {
            let count = loads.len();
            return Err(format!(
                "{count} volumes are not 1 to {RECORDING_VOLUMES_MAX}; accepted is {EXPECTED}"
            ));
        }
        for (index, load) in loads.iter().enumerate() {
            if loads[..index].iter().any(|other| (&other.tenant, &other.name) == (&load.tenant, &load.name)) {
                return Err(format!("volume '{}' is there twice", load.name));
            }
        }
        let open: u64 = loads.iter().map(|load| u64::from(load.depth) * u64::from(load.connections)).sum();
        match open <= MADE_UP_REQUESTS_MAX {
            true => Ok(Spec { loads }),
            false => {
                Err(format!("{open} requests would be open at a time; {MADE_UP_REQUESTS_MAX} are the most"))
            }
        }
    }

    /// A header with the volumes of the load on one drive, without policies.
    pub fn header(&self, drive: Emulation, seconds: u32) -> Header {
        let volumes = self.loads.iter().zip(1..).map(|(load, number)| load.volume(number));
        Header {
            duration_ns: u64::from(seconds) * 1_000_000_000,
            is_cut_short: false,
            drives: vec![TraceDrive {
                name: weir_types::name::default_drive(),
                emulation: Some(drive),
                in_flight: None,
            }],
            volumes: volumes.collect(),
        }
    }
}

impl VolumeLoad {
    fn parse(text: &str) -> Result<VolumeLoad, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let (tenant, name) = name.trim().split_once('/').unwrap_or((DEFAULT_TENANT, name.trim()));
        let named = |name: &str| Name::new(name).map_err(|error| error.to_string());
        let mut load = VolumeLoad {
            tenant: named(tenant)?,
            name: named(name)?,
            depth: 1,
            bytes: 4096,
            read_percent: 100,
            think_ns: 0,
            connections: 1,
            capacity_bytes: 1 << 30,
        };
        for parameter in parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter
                .split_once('=')
                .ok_or_else(|| format!("'{parameter}' is not understood; accepted is {EXPECTED}"))?;
            load.set(key.trim(), value.trim())?;
        }
        Ok(load)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "depth" => self.depth = number(key, value, 1..=CONNECTION_REQUESTS_MAX as u32)?,
            "size" => self.bytes = bytes(key, value, 512..=REQUEST_BYTES_MAX.into())? as u32,
            "read" => self.read_percent = number(key, value.strip_suffix('%').unwrap_or(value), 0..=100)?,
            "think" => {
                let ns = parse_time(value).map_err(|error| error.to_string())?;
                self.think_ns = Some(ns)
                    .filter(|ns| *ns <= THINK_NS_MAX)
                    .ok_or("a think time of up to 3600s is accepted")?;
            }
            "connections" => {
                self.connections = number(key, value, 1..=CONNECTIONS_SHARED_PER_REACTOR_MAX as u32)?
            }
            "capacity" => self.capacity_bytes = bytes(key, value, 4096..=VOLUME_SIZE_BYTES_MAX)?,
            _ => return Err(format!("'{key}' is not understood; accepted is {EXPECTED}")),
        }
        Ok(())
    }

    fn volume(&self, number: u128) -> TraceVolume {
        let level = |scope, name: &Name| TraceLevel { scope, name: name.clone(), terms: Terms::default() };
        let own = Scope::Volume(VolumeId(uuid::Uuid::from_u128(number)));
        TraceVolume {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            size_bytes: self.capacity_bytes,
            used_bytes: self.capacity_bytes,
            drive: 0,
            levels: vec![level(Scope::Tenant(self.tenant.clone()), &self.tenant), level(own, &self.name)],
        }
    }
}

fn number(key: &str, value: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let accepted = whole_number(value).filter(|value| range.contains(value));
    accepted.ok_or_else(|| format!("'{key}={value}' is not from {} to {}", range.start(), range.end()))
}

fn bytes(key: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let size = Size::parse(value, 1).map_err(|error| format!("'{key}={value}': {error}"))?;
    let accepted = Some(size.0).filter(|bytes| range.contains(bytes));
    accepted.ok_or_else(|| {
        format!("'{key}={value}' is not from {} to {}", Size(*range.start()), Size(*range.end()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_read_as_documented() {
        let spec =
            Spec::parse("vol1:depth=32,size=4KiB,read=70%; svm01/vol2: depth=4, size=64KiB, think=1ms ;v3")
                .unwrap();
        let found: Vec<_> =
            spec.loads.iter().map(|l| (l.depth, l.bytes, l.read_percent, l.think_ns)).collect();
        assert_eq!(found, [(32, 4096, 70, 0), (4, 65_536, 100, 1_000_000), (1, 4096, 100, 0)]);
        assert_eq!(spec.loads[1].tenant.as_str(), "svm01");
        let spec = Spec::parse("v:connections=3,capacity=10GiB,read=0").unwrap();
        let VolumeLoad { connections, capacity_bytes, read_percent, .. } = spec.loads[0];
        assert_eq!((connections, capacity_bytes, read_percent), (3, 10 << 30, 0));
    }

    #[test]
    fn parse_error_names_value_and_accepted_notation() {
        for (text, words) in [
            ("", "0 volumes are not 1 to 256"),
            ("vol1:depth", "'depth' is not understood; accepted is VOLUME:depth=N"),
            ("vol1:speed=9", "'speed' is not understood"),
            ("vol1:depth=+1", "'depth=+1' is not from 1 to 1024"),
            ("vol1:read=70%%", "'read=70%' is not from 0 to 100"),
            ("vol1:depth=0", "'depth=0' is not from 1 to 1024"),
            ("vol1:read=101%", "'read=101' is not from 0 to 100"),
            ("vol1:size=64MiB", "'size=64MiB' is not from 512B to 32MiB"),
            ("vol1:size=x", "'size=x'"),
            ("vol1:think=5", "'5' is not a time with its unit"),
            ("vol1:think=2000000s", "up to 3600s"),
            ("vol1;vol1:depth=2", "volume 'vol1' is there twice"),
            ("vol 1", "vol 1"),
            ("a:depth=1024,connections=256", "262144 requests would be open at a time"),
        ] {
            let error = Spec::parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
