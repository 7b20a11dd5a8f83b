//! The command line of `pcburst`.

use crate::burst::BurstOptions;
use crate::page_cache_state::PageCacheOptions;
use clap::Parser;
use contract::amount::Amount;
use contract::cli::CommandLine;
use contract::{Failure, Handshake};

const EXAMPLES: &str = "\
Examples:
  pcburst --bytes 268435456 --no-handshake
  pcburst --bytes 268435456 --page-cache clean --file data.bin --no-handshake
  pcburst --size-of data.bin --fraction 0.4 --page-cache dirty --file data.bin --dir /data --no-handshake

Exit codes: 0 done, 1 failed or memory changed, 2 bad arguments, 77 cannot on this host.";

/// Takes memory as fast as it can beside a page cache, and reports how long each MiB took
#[derive(Debug, Clone, Parser)]
#[command(name = "pcburst", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub page_cache: PageCacheOptions,
    #[command(flatten)]
    pub burst: BurstOptions,
    #[command(flatten)]
    pub handshake: Handshake,
}

impl CommandLine for Arguments {
    fn validate(&self) -> Result<(), Failure> {
        self.page_cache.validate()
    }
}
