//! The fuzz drivers on generated input, so that every run of the tests covers what the fuzzer does.

mod support;

use proptest::prelude::*;

use support::drivers::{drive_header, drive_superblock};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn twenty_thousand_headers(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        drive_header(&data);
    }

    #[test]
    fn twenty_thousand_superblocks(data in proptest::collection::vec(any::<u8>(), 0..120)) {
        drive_superblock(&data);
    }
}
