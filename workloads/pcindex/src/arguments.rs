//! The command line of `pcindex`.

use crate::load::LoadOptions;
use crate::lookup::LookupOptions;
use crate::segment::IndexOptions;
use clap::Parser;
use contract::cli::CommandLine;
use contract::{Failure, Handshake};

const EXAMPLES: &str = "\
Examples:
  pcindex --files index-*.bin --load sequential --no-handshake
  pcindex --files index-*.bin --load lazy --advice random --max-seconds 60 --no-handshake
  pcindex --files index-*.bin --load touch --advice sequential --then-advice normal --no-handshake

Exit codes: 0 done, 1 failed or wrong answer, 2 bad arguments, 77 cannot on this host.";

/// Loads an index of mapped hash tables, looks its start-up set up, and reports how long that took
#[derive(Debug, Clone, Parser)]
#[command(name = "pcindex", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub index: IndexOptions,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub lookup: LookupOptions,
    #[command(flatten)]
    pub handshake: Handshake,
}

impl CommandLine for Arguments {
    fn validate(&self) -> Result<(), Failure> {
        self.load.validate()
    }
}
