//! `weir`: the daemon and its command line in one binary.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weir::cli::run(std::env::args_os())
}
