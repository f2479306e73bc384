//! The fuzz drivers on generated input: every test run covers the same checks as the fuzzer.

mod support;

use proptest::prelude::*;

use support::drivers::{drive_header, drive_superblock};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn generated_headers_pass_the_driver(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        drive_header(&data);
    }

    #[test]
    fn generated_superblocks_pass_the_driver(data in proptest::collection::vec(any::<u8>(), 0..120)) {
        drive_superblock(&data);
    }
}
