//! Kinds of drives that can be emulated by name. Nothing here knows how names and parameters are read.

use serde::{Deserialize, Serialize};

use super::Emulation;

/// A kind of drive. What is said of one is about 4 KiB reads at random places, if nothing else is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EmulationKind {
    /// A provisioned volume of a cloud: 10 346 operations per second, 0.58 ms one at a time, 320 MB/s.
    #[serde(rename = "ebs-io1")]
    EbsIo1,
    /// A general one: 5783 operations per second, 0.54 ms one at a time, 160 MB/s.
    #[serde(rename = "ebs-gp2")]
    EbsGp2,
    /// A magnetic one: 89 operations per second, 23.61 ms one at a time, 60 MB/s in sequence.
    #[serde(rename = "ebs-standard")]
    EbsStandard,
    /// A disk of 7200 turns a minute: 80 operations per second, 180 MB/s in sequence.
    #[serde(rename = "hdd-7200")]
    Hdd7200,
    /// A solid-state drive behind SATA: 90 000 operations per second, 90 µs one at a time, 540 MB/s.
    #[serde(rename = "sata-ssd")]
    SataSsd,
    /// One on PCI Express: 400 000 operations per second, 80 µs one at a time, 3 GB/s.
    #[serde(rename = "nvme")]
    Nvme,
}

impl EmulationKind {
    /// All of them.
    pub const ALL: [EmulationKind; 6] = [
        EmulationKind::EbsIo1,
        EmulationKind::EbsGp2,
        EmulationKind::EbsStandard,
        EmulationKind::Hdd7200,
        EmulationKind::SataSsd,
        EmulationKind::Nvme,
    ];

    /// Its name, in lower case.
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

    /// The kind of a name, in whatever case.
    pub fn named(name: &str) -> Option<EmulationKind> {
        EmulationKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Its parameters. Where a time for one operation is known, the latency is what the turn leaves of it.
    pub const fn emulation(self) -> Emulation {
        match self {
            EmulationKind::EbsIo1 => Emulation::even(10_346, Some(320_000_000), 483_344),
            EmulationKind::EbsGp2 => Emulation::even(5783, Some(160_000_000), 367_079),
            // In sequence it is bound by its bytes. At random places a turn is 1 ms and the seek: one of 89
            // in a second.
            EmulationKind::EbsStandard => {
                Emulation { seek_ns: 10_235_955, ..Emulation::even(1000, Some(60_000_000), 12_374_045) }
            }
            // The arm moves for 8.3 ms and half a turn passes, 4.2 ms: with the turn itself 12.5 ms. A flush
            // waits for one turn.
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
    fn every_kind_is_found_by_its_name_and_by_its_parameters() {
        for kind in EmulationKind::ALL {
            assert_eq!(EmulationKind::named(&kind.name().to_ascii_uppercase()), Some(kind));
            assert_eq!(kind.emulation().kind(), Some(kind));
            assert_eq!(kind.emulation().checked(), Ok(kind.emulation()));
        }
        assert_eq!(EmulationKind::named("nvm"), None);
        assert_eq!(Emulation { latency_ns: 1, ..EmulationKind::Nvme.emulation() }.kind(), None);
    }
}
