//! Parameters of an emulated drive. They are numbers here; drive queues and clocks are not known.

mod kind;
mod text;
mod turns;

use serde::{Deserialize, Serialize};

use crate::bounds::{EMULATED_PARALLEL_MAX, EMULATED_TIME_NS_MAX, RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
use crate::units::{ByteRate, UnitError};

pub use kind::EmulationKind;
pub use text::parse_time;
pub use turns::{Capacity, Turns};

/// Behaviour of an emulated drive.
///
/// Operations take turns, one after the other. A turn takes `1 / iops` or the time that its bytes need,
/// whichever is longer. It takes `seek_ns` more if the operation does not begin where the previous one ended.
/// An operation is answered `latency_ns` after its turn, while others have their turns. It is in service
/// until its answer, and at most `parallel` operations are in service at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// Operations per second, 1 to [`RATE_IOPS_MAX`].
    pub iops: u64,
    /// Bytes per second, 1 to [`RATE_BYTES_PER_SECOND_MAX`]; `None` for no bound beside `iops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Time from the end of an operation's turn to its answer, in nanoseconds, up to
    /// [`EMULATED_TIME_NS_MAX`].
    #[serde(default)]
    pub latency_ns: u64,
    /// Extra time of a turn whose operation does not begin where the drive's previous one ended, in
    /// nanoseconds, up to [`EMULATED_TIME_NS_MAX`]. Records from before the parameter existed lack it.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub seek_ns: u64,
    /// Turn of a flush, in nanoseconds, up to [`EMULATED_TIME_NS_MAX`]; the flush is answered at its end.
    /// `None` if a flush takes the latency and no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_ns: Option<u64>,
    /// Operations in service at a time, from the beginning of their turns to their answers, 1 to
    /// [`EMULATED_PARALLEL_MAX`]. `None` for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
}

/// Named parameters of a drive. `None` means not named. `Some(None)` means that the drive is without an
/// optional parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// See [`Emulation::iops`].
    pub iops: Option<u64>,
    /// See [`Emulation::bytes_per_second`].
    pub bytes_per_second: Option<Option<u64>>,
    /// See [`Emulation::latency_ns`].
    pub latency_ns: Option<u64>,
    /// See [`Emulation::seek_ns`].
    pub seek_ns: Option<u64>,
    /// See [`Emulation::flush_ns`].
    pub flush_ns: Option<Option<u64>>,
    /// See [`Emulation::parallel`].
    pub parallel: Option<Option<u32>>,
}

impl Parameters {
    /// The drive that the parameters describe: a kind with these parameters replaced, or a plain drive with
    /// only these parameters.
    ///
    /// # Errors
    /// If neither a kind nor `iops` is named, or a value is not accepted. The error names the value and the
    /// accepted values.
    pub fn of(self, kind: Option<EmulationKind>) -> Result<Emulation, UnitError> {
        let plain = self.iops.map(|iops| Emulation::even(iops, None, 0));
        let base = kind.map(EmulationKind::emulation).or(plain);
        let base = base.ok_or_else(|| UnitError::new("iops=none", text::expected_iops()))?;
        let emulation = Emulation {
            iops: self.iops.unwrap_or(base.iops),
            bytes_per_second: self.bytes_per_second.unwrap_or(base.bytes_per_second),
            latency_ns: self.latency_ns.unwrap_or(base.latency_ns),
            seek_ns: self.seek_ns.unwrap_or(base.seek_ns),
            flush_ns: self.flush_ns.unwrap_or(base.flush_ns),
            parallel: self.parallel.unwrap_or(base.parallel),
        };
        emulation.checked()
    }
}

impl Emulation {
    /// A drive on which positions make no difference, with no bound on operations in service, and whose
    /// flushes take no turn.
    pub const fn even(iops: u64, bytes_per_second: Option<u64>, latency_ns: u64) -> Emulation {
        Emulation { iops, bytes_per_second, latency_ns, seek_ns: 0, flush_ns: None, parallel: None }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a value is not accepted. The error names the value and the accepted values.
    pub fn checked(self) -> Result<Emulation, UnitError> {
        let time = |ns: u64| text::Time(ns).to_string();
        in_range("iops", self.iops, 1..=RATE_IOPS_MAX, |iops| iops.to_string())?;
        if let Some(rate) = self.bytes_per_second {
            in_range("bandwidth", rate, 1..=RATE_BYTES_PER_SECOND_MAX, |rate| ByteRate(rate).to_string())?;
        }
        in_range("latency", self.latency_ns, 0..=EMULATED_TIME_NS_MAX, time)?;
        in_range("seek", self.seek_ns, 0..=EMULATED_TIME_NS_MAX, time)?;
        if let Some(flush_ns) = self.flush_ns {
            in_range("flush", flush_ns, 0..=EMULATED_TIME_NS_MAX, time)?;
        }
        if let Some(parallel) = self.parallel {
            let range = 1..=u64::from(EMULATED_PARALLEL_MAX);
            in_range("parallel", parallel.into(), range, |operations| operations.to_string())?;
        }
        Ok(self)
    }

    /// The kind that has exactly these parameters.
    pub fn kind(&self) -> Option<EmulationKind> {
        EmulationKind::ALL.into_iter().find(|kind| kind.emulation() == *self)
    }
}

/// True for a time that is left out of records.
fn is_nothing(time_ns: &u64) -> bool {
    *time_ns == 0
}

fn in_range(
    what: &str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
    written: impl Fn(u64) -> String,
) -> Result<(), UnitError> {
    if range.contains(&value) {
        return Ok(());
    }
    let expected = format!("from {} to {}", written(*range.start()), written(*range.end()));
    Err(UnitError::new(&format!("{what}={}", written(value)), expected))
}
