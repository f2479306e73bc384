//! `weir`: the daemon and its command line in one binary.
fn main() {}
