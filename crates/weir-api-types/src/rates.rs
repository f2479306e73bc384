//! Conversion of limits and rates between the types of the API and those of the rest of the daemon.

use weir_types::{Limits, Throughput};

use super::{PolicyLimits, Rates};

impl From<Throughput> for Rates {
    fn from(throughput: Throughput) -> Rates {
        Rates { iops: throughput.iops, bytes_per_second: throughput.bytes_per_second }
    }
}

impl From<Rates> for Throughput {
    fn from(rates: Rates) -> Throughput {
        Throughput { iops: rates.iops, bytes_per_second: rates.bytes_per_second }
    }
}

impl From<Limits> for PolicyLimits {
    fn from(limits: Limits) -> PolicyLimits {
        PolicyLimits { total: limits.total.into(), read: limits.read.into(), write: limits.write.into() }
    }
}
