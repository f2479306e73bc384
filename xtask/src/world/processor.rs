//! Processor use of the machine, which tells a measurement of the drive from one of the processors.

use anyhow::{Context, Result};

/// Processor time of the whole machine up to some moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTime {
    busy: u64,
    all: u64,
}

impl ProcessorTime {
    /// Returns the processor time up to now.
    pub fn now() -> Result<ProcessorTime> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        ProcessorTime::read(&text).context("/proc/stat is odd")
    }

    /// Reads the first line: user, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen.
    /// Later fields are contained in these already. Stolen time is busy: it was requested and not available.
    fn read(text: &str) -> Option<ProcessorTime> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(ProcessorTime { busy: all - idle, all })
    }

    /// Returns the fraction of all processors' time that was used since an earlier moment, from 0 to 1.
    pub fn busy_since(self, earlier: ProcessorTime) -> f64 {
        self.busy.saturating_sub(earlier.busy) as f64 / self.all.saturating_sub(earlier.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_wait_is_idle_and_stolen_time_is_busy() {
        let before = ProcessorTime::read("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1").unwrap();
        let after = ProcessorTime::read("cpu  10 10 10 40 10 5 5 10 99 99\n").unwrap();
        assert_eq!(after.busy_since(before), 0.5);
        assert_eq!(after.busy_since(after), 0.0);
        assert_eq!(ProcessorTime::read("intr 5"), None);
    }
}
