//! Tasks of the project: checks, the demo and the benches. The project has no other scripts.
//!
//! This program knows Weir only from outside: by its command line, its sockets and its sources.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod csi_sanity;
mod demo;
mod fuzz;
mod guest;
mod kubernetes;
mod numbers;
mod prose;
mod report;
mod repository;
mod sabotage;
mod structure;
mod test_run;
mod tidy;
mod world;

use anyhow::{Result, bail};

use arguments::Arguments;

const HELP: &str = "\
usage: cargo xtask COMMAND

  setup                            install the programs that tests, demo and benches need
  test                             build all tests, and run two test programs at a time, then the guest cases
  tidy [--sources-only]            check formatting, lints, crate edges, purity, promises, house style
  tidy --list-tests                print every test by the name that docs/reference/promise-tests.md may use
  demo [--keep] [--output DIR] [--disk DIR]
                                   show classes of service, and what policies do about a noisy neighbour
  csi-sanity                       run the conformance test of CSI drivers; needs root and Go
  kubernetes [--build-only]        go through the life of volumes in a Kubernetes cluster; needs root and Go
  prose [--list]                   how long the sentences of the documents are
  structure [CRATE] [--calls]      the tree with a line for each file, large types, circles of calls, cycles of modules;
                                   --map: the code map of ARCHITECTURE.md
  fuzz [TARGET] [--executions N]   run the fuzz targets, a million executions each; needs a nightly toolchain
  guest [CASE]                     run the cases that need a kernel whose drives fail and delay on demand
  bench NAME|all [--quick] [--in-turn ROUNDS] [--cell NAME] [--json FILE] [--disk DIR]
                                   measure: nbd, ceiling, shared, modify, neighbour, scheduler, isolation, many, burst,
                                   classes, snapshots
  sabotage [NAME ...]              plant known faults in the production code and see that tests catch each
";

fn run(mut arguments: Arguments) -> Result<()> {
    match arguments.word().as_deref() {
        Some("bench") => bench::run(arguments),
        Some("csi-sanity") => csi_sanity::run(arguments),
        Some("demo") => demo::run(arguments),
        Some("fuzz") => fuzz::run(arguments),
        Some("guest") => guest::run(arguments),
        Some("guest-case") => guest::run_inside(arguments),
        Some("kubernetes") => kubernetes::run(arguments),
        Some("setup") => {
            arguments.finish()?;
            world::tools::setup()?;
            guest::setup()
        }
        Some("prose") => prose::run(arguments),
        Some("sabotage") => sabotage::run(arguments),
        Some("structure") => structure::run(arguments),
        Some("test") => test_run::run(arguments),
        Some("tidy") => tidy::run(arguments),
        Some("help") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => bail!("unknown command '{other}'\n\n{HELP}"),
    }
}

fn main() -> std::process::ExitCode {
    let outcome = world::interrupt::watch().and_then(|()| run(Arguments::new(std::env::args().skip(1))));
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
