//! Kinds of drives that can be emulated by name. Nothing here knows how names and parameters are parsed.

use serde::{Deserialize, Serialize};

use super::Emulation;

/// A kind of drive. Figures of variants are for random reads of 4 KiB, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EmulationKind {
    /// A provisioned cloud volume: 10 346 operations per second, 0.58 ms one at a time, 320 MB/s.
    #[serde(rename = "ebs-io1")]
    EbsIo1,
    /// A general-purpose cloud volume: 5783 operations per second, 0.54 ms one at a time, 160 MB/s.
    #[serde(rename = "ebs-gp2")]
    EbsGp2,
    /// A magnetic cloud volume: 89 operations per second, 23.61 ms one at a time, 60 MB/s sequentially.
    #[serde(rename = "ebs-standard")]
    EbsStandard,
    /// A disk with 7200 rpm: 80 operations per second, 180 MB/s sequentially.
    #[serde(rename = "hdd-7200")]
    Hdd7200,
    /// A solid-state drive on SATA: 90 000 operations per second, 90 µs one at a time, 540 MB/s.
    #[serde(rename = "sata-ssd")]
    SataSsd,
    /// A solid-state drive on PCI Express: 400 000 operations per second, 80 µs one at a time, 3 GB/s.
    #[serde(rename = "nvme")]
    Nvme,
}

impl EmulationKind {
    /// All kinds.
    pub const ALL: [EmulationKind; 6] = [
        EmulationKind::EbsIo1,
        EmulationKind::EbsGp2,
        EmulationKind::EbsStandard,
        EmulationKind::Hdd7200,
        EmulationKind::SataSsd,
        EmulationKind::Nvme,
    ];

    /// Name of the kind, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            EmulationKind::EbsIo1 => "ebs-io1",
            EmulationKind::EbsGp2 => "ebs-gp2",
            EmulationKind::EbsStandard => "ebs-standard",
            EmulationKind::Hdd7200 => "hdd-7200",
            EmulationKind::SataSsd => "sata-ssd",
            EmulationKind::Nvme => "nvme",
        }
    }

    /// The kind with a name, in any case.
    pub fn named(name: &str) -> Option<EmulationKind> {
        EmulationKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Parameters of the kind. Where the time of a single operation is known, the latency is that time less
    /// the turn.
    pub const fn emulation(self) -> Emulation {
        match self {
            EmulationKind::EbsIo1 => Emulation::even(10_346, Some(320_000_000), 483_344),
            EmulationKind::EbsGp2 => Emulation::even(5783, Some(160_000_000), 367_079),
            // Sequential operations are bound by bandwidth. A random turn is 1 ms and the seek: 89 of them
            // take a second.
            EmulationKind::EbsStandard => {
                Emulation { seek_ns: 10_235_955, ..Emulation::even(1000, Some(60_000_000), 12_374_045) }
            }
            // The arm moves for 8.3 ms, and half a revolution takes 4.2 ms: with the turn itself 12.5 ms. A
            // flush takes one revolution.
            EmulationKind::Hdd7200 => Emulation {
                seek_ns: 12_450_000,
                flush_ns: Some(8_300_000),
                ..Emulation::even(20_000, Some(180_000_000), 100_000)
            },
            EmulationKind::SataSsd => {
                Emulation { flush_ns: Some(1_000_000), ..Emulation::even(90_000, Some(540_000_000), 79_000) }
            }
            EmulationKind::Nvme => {
                Emulation { flush_ns: Some(20_000), ..Emulation::even(400_000, Some(3_000_000_000), 77_500) }
            }
        }
    }
}

impl std::fmt::Display for EmulationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_name_and_by_parameters() {
        for kind in EmulationKind::ALL {
            assert_eq!(EmulationKind::named(&kind.name().to_ascii_uppercase()), Some(kind));
            assert_eq!(kind.emulation().kind(), Some(kind));
            assert_eq!(kind.emulation().checked(), Ok(kind.emulation()));
        }
        assert_eq!(EmulationKind::named("nvm"), None);
        assert_eq!(Emulation { latency_ns: 1, ..EmulationKind::Nvme.emulation() }.kind(), None);
    }
}
