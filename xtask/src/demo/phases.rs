//! Phases of the demo.

/// Phase: loads that begin, then commands.
pub struct Phase {
    /// Title of the phase.
    pub title: &'static str,
    /// Volumes, by index, with the number of jobs of the load that replaces the one before.
    pub loads: &'static [(usize, u32)],
    /// Volumes, by index, with a ceiling that is judged.
    pub limited: &'static [usize],
    /// Commands, written as after the program's name.
    pub commands: &'static [&'static str],
}

/// Index of each phase in [`PHASES`].
pub mod index {
    /// Three equal loads.
    pub const EQUAL: usize = 0;
    /// Volume 1 is noisy.
    pub const NOISY: usize = 1;
    /// Volume 1 has a ceiling of 1000 IOPS.
    pub const THOUSAND: usize = 3;
    /// Volume 1 has a ceiling of 2000 IOPS.
    pub const TWO_THOUSAND: usize = 4;
    /// Volumes 1 and 2 have a ceiling of 2000 IOPS each.
    pub const EACH: usize = 5;
    /// Volumes 1 and 2 have a ceiling of 3000 IOPS together.
    pub const TOGETHER: usize = 6;
    /// Volume 2 has a ceiling of 1500 IOPS per TB, and a size of 100 GB.
    pub const HUNDRED_GB: usize = 7;
    /// Volume 2 has a size of 1 TB.
    pub const ONE_TB: usize = 8;
    /// Volume 2 has a size of 10 TB, whose ceiling is above the rest of the drive's rate.
    pub const TEN_TB: usize = 9;
}

/// Phases in order.
pub const PHASES: [Phase; 10] = [
    Phase {
        title: "three volumes, 2 jobs each",
        loads: &[(0, 2), (1, 2), (2, 2)],
        limited: &[],
        commands: &[],
    },
    Phase { title: "vol1 turns noisy: 32 jobs, no limit", loads: &[(0, 32)], limited: &[], commands: &[] },
    Phase {
        title: "vol1 under policy1: 10000 IOPS",
        loads: &[],
        limited: &[],
        commands: &[
            "qos policy-group create policy1 -vserver svm01 -max-throughput 10000IOPS,300MB/s -is-shared false",
            "qos policy-group show -vserver svm01 -policy-group policy1",
            "volume modify -volume vol1 -vserver svm01 -qos-policy-group policy1",
        ],
    },
    Phase {
        title: "policy1 modified: 1000 IOPS",
        loads: &[],
        limited: &[0],
        commands: &["qos policy-group modify policy1 -vserver svm01 -max-throughput 1000IOPS,200MB/s"],
    },
    Phase {
        title: "policy1 modified: 2000 IOPS",
        loads: &[],
        limited: &[0],
        commands: &["qos policy-group modify policy1 -vserver svm01 -max-throughput 2000IOPS,200MB/s"],
    },
    Phase {
        title: "vol2 under policy1 too: 2000 each",
        loads: &[],
        limited: &[0, 1],
        commands: &["volume modify -volume vol2 -vserver svm01 -qos-policy-group policy1"],
    },
    Phase {
        title: "vol1 and vol2 share 3000 IOPS",
        loads: &[],
        limited: &[0, 1],
        commands: &[
            "qos policy-group create policy1-shared -vserver svm01 -max-throughput 3000IOPS,200MB/s -is-shared true",
            "volume modify -volume vol1 -vserver svm01 -qos-policy-group policy1-shared",
            "volume modify -volume vol2 -vserver svm01 -qos-policy-group policy1-shared",
            "qos policy-group show -vserver svm01 -policy-group policy1-shared",
        ],
    },
    Phase {
        title: "vol2 adaptive: 1500 IOPS/TB at 100 GB",
        loads: &[],
        limited: &[1],
        commands: &[
            "qos adaptive-policy-group create -policy-group adaptive-policy2 -vserver svm01 -expected-IOPS 1000 -block-size 4k -expected-IOPS-allocation allocated-space -peak-IOPS 1500 -peak-IOPS-allocation allocated-space",
            "volume modify -volume vol2 -vserver svm01 -qos-policy-group none",
            "volume resize vol2 --tenant svm01 --size 100GB",
            "vol modify -vserver svm01 -volume vol2 -qos-adaptive-policy-group adaptive-policy2",
        ],
    },
    Phase {
        title: "vol2 resized to 1 TB",
        loads: &[],
        limited: &[1],
        commands: &["volume resize vol2 --tenant svm01 --size 1TB"],
    },
    Phase {
        title: "vol2 resized to 10 TB",
        loads: &[],
        limited: &[],
        commands: &["volume resize vol2 --tenant svm01 --size 10TB"],
    },
];
