//! Docker's plugin and the CSI driver end in order from the moment when their sockets can be seen.

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::daemon::{Daemon, State, WEIR};

/// A start reaches the moment in question by chance, so there are some.
const STARTS: usize = 20;

/// A server of this daemon.
fn command(daemon: &Daemon, name: &str) -> Command {
    let mut command = Command::new(WEIR);
    let server = format!("unix:{}", daemon.state().path().join("api.sock").display());
    command.arg(name).args(["--server", &server]);
    command
}

/// Starts the server, and ends it as soon as its socket is there. No socket stays.
fn end_early(command: &mut Command, socket: &Path) {
    for _ in 0..STARTS {
        let mut child = command.spawn().unwrap();
        wait_for_socket(&mut child, socket);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!socket.exists());
    }
}

/// Waits without a pause, which would let the moment pass.
fn wait_for_socket(child: &mut Child, socket: &Path) {
    while !socket.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::yield_now();
    }
}

#[test]
fn plugin_of_docker_ends_as_soon_as_its_socket_is_there() {
    let daemon = State::new().start(&[]);
    let sockets = daemon.state().beside("sockets");
    let mut plugin = command(&daemon, "docker-plugin");
    plugin.arg("--sockets").arg(&sockets).arg("--folder").arg(daemon.state().beside("plugin"));
    end_early(&mut plugin, &sockets.join("weir.sock"));
}

#[test]
fn driver_of_kubernetes_ends_as_soon_as_its_socket_is_there() {
    let daemon = State::new().start(&[]);
    let socket = daemon.state().beside("early.sock");
    let mut driver = command(&daemon, "csi");
    driver.arg("--endpoint").arg(format!("unix://{}", socket.display()));
    end_early(&mut driver, &socket);
}
