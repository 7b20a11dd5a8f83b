//! The command line of `pcgen`.

use crate::{Fill, Request};
use clap::{value_parser, Parser};
use contract::cli::CommandLine;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pcgen --out data.bin --size-bytes 134217728 --seed 1     make 128 MiB, or find it there already
  pcgen --out data.bin --size-bytes 4096 --seed 2 --force  replace it
  pcgen --out i.bin --size-bytes 2097152 --fill index      a hash table with verifiable entries
  pcgen --verify data.bin                                  read it back and compare with data.bin.json

Exit codes: 0 done, 1 failed, 2 bad arguments.";

/// Makes a dataset: incompressible, without holes, with a sidecar that states the sums of its bytes
#[derive(Debug, Clone, Parser)]
#[command(name = "pcgen", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The data file; its sidecar becomes FILE.json
    #[arg(long, value_name = "FILE", required_unless_present = "verify")]
    out: Option<PathBuf>,
    /// Length of the data
    #[arg(long, value_name = "N", required_unless_present = "verify", value_parser = value_parser!(u64).range(1..))]
    size_bytes: Option<u64>,
    /// The same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Content of the data file
    #[arg(long, value_enum, default_value = "random")]
    fill: Fill,
    /// Replace another file of that name
    #[arg(long)]
    force: bool,
    /// Compare FILE with its sidecar
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "size_bytes", "force"])]
    verify: Option<PathBuf>,
}

/// Action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Make a dataset.
    Make(Request),
    /// Compare a dataset with its sidecar.
    Verify(PathBuf),
}

impl CommandLine for Arguments {}

impl Arguments {
    /// Return the requested task.
    #[must_use]
    pub fn task(&self) -> Task {
        match (self.verify.clone(), self.out.clone(), self.size_bytes) {
            (None, Some(out), Some(size_bytes)) => Task::Make(Request {
                out,
                size_bytes,
                seed: self.seed,
                fill: self.fill,
                force: self.force,
            }),
            (data, ..) => Task::Verify(data.unwrap_or_default()),
        }
    }
}
