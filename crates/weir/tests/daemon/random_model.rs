//! Random operations through libnbd, an independent client, checked against a model in memory.
//!
//! `WEIR_MODEL_OPERATIONS` is the number of operations of each run. `WEIR_SEED` repeats the random choices.

use std::process::Command;

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, READ};
use crate::common::program::{PYTHON, has_libnbd, run};
use crate::common::setting;

/// Python driver, which lies beside this file.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/random_model.py");

/// Starts a daemon with the volume that the driver expects: three extents, so that requests cross their
/// boundaries.
fn with_subject() -> Daemon {
    let daemon = Daemon::fresh();
    daemon.create("subject", "3GiB");
    daemon
}

fn compare_with_model(daemon: Daemon, replies: &str, operations: u64) {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = setting("WEIR_SEED", clock).to_string();
    let operations = setting("WEIR_MODEL_OPERATIONS", operations).to_string();
    let mut command = Command::new(PYTHON);
    command.args([DRIVER, &daemon.uri("subject"), &seed, &operations, replies]);
    print!("{}", run(&mut command).ok());
    daemon.stop();
}

#[test]
fn random_operations_agree_with_a_model() {
    if has_libnbd() {
        compare_with_model(with_subject(), "structured", 4000);
    }
}

#[test]
fn random_operations_agree_with_a_model_without_structured_replies() {
    if has_libnbd() {
        compare_with_model(with_subject(), "simple", 4000);
    }
}

#[test]
fn random_operations_agree_with_a_model_under_a_ceiling() {
    if !has_libnbd() {
        return;
    }
    let daemon = with_subject();
    daemon.ok(&["qos", "policy-group", "create", "tight", "--max-throughput", "2000IOPS,200MB/s"]);
    daemon.ok(&["volume", "modify", "subject", "--qos-policy-group", "tight"]);
    compare_with_model(daemon, "structured", 1000);
}

#[test]
fn random_operations_agree_with_a_model_while_buffers_run_out() {
    if !has_libnbd() {
        return;
    }
    let daemon = with_subject();
    // Clients of a hog volume on the same reactor request more data than all buffers hold, and never read it.
    daemon.create("elsewhere", "1GiB");
    daemon.create("hog", "1GiB");
    let mut writer = Client::attach(&daemon.nbd_socket(), "hog");
    (0..32).for_each(|piece| writer.write(piece << 20, &vec![7; 1 << 20]).unwrap());
    let hogs: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::attach(&daemon.nbd_socket(), "hog");
            (0..300).for_each(|_| drop(client.send(READ, 0, 0, 128 << 10, &[])));
            client
        })
        .collect();
    compare_with_model(daemon, "structured", 1000);
    drop(hogs);
}
