//! Random operations through libnbd, a client that is not ours, against a model in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;

use common::daemon::Daemon;
use common::program::{PYTHON, has_libnbd, run};
use common::setting;

/// The driver beside this file.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/random_model.py");

fn compare_with_model(structured: bool, seed: u64) {
    if !has_libnbd() {
        return;
    }
    let daemon = Daemon::fresh();
    // Three extents, so that requests cross the boundaries between them.
    daemon.create("subject", "3GiB");
    let operations = setting("WEIR_MODEL_OPERATIONS", 2500).to_string();
    let mut command = Command::new(PYTHON);
    command.args([DRIVER, &daemon.uri("subject"), &seed.to_string(), &operations]);
    command.arg(if structured { "structured" } else { "simple" });
    print!("{}", run(&mut command).ok());
    daemon.stop();
}

#[test]
fn random_operations_agree_with_a_model() {
    compare_with_model(true, seed());
}

#[test]
fn random_operations_agree_with_a_model_without_structured_replies() {
    compare_with_model(false, seed() ^ 0xffff);
}

fn seed() -> u64 {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    setting("WEIR_SEED", clock)
}
