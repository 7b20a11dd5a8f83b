//! The command line of `pcwrite`.

use crate::writer::WriteOptions;
use clap::Parser;
use contract::amount::Amount;
use contract::cli::CommandLine;
use contract::Handshake;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pcwrite --dir /data --bytes 67108864 --msync sync --no-handshake
  pcwrite --dir /data --size-of /data/file --fraction 0.5 --pattern random --msync async --every-pages 256 --no-handshake
  pcwrite --dir /data --bytes 67108864 --method pwrite --msync sync --no-handshake     fdatasync(2) instead of msync(2)

Exit codes: 0 done, 1 failed or read back wrong, 2 bad arguments, 77 cannot on this host.";

/// Writes a file through a mapping or by calls, and reports what that cost and what reached the
/// disk
#[derive(Debug, Clone, Parser)]
#[command(name = "pcwrite", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// Folder in which the file is made; the file has no name and disappears with the process
    #[arg(long = "dir", value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub write: WriteOptions,
    #[command(flatten)]
    pub handshake: Handshake,
}

impl CommandLine for Arguments {}
