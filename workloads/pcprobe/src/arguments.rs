//! The command line of `pcprobe`.

use crate::engine::EngineChoice;
use crate::sizes::parse_size_bytes;
use clap::{value_parser, Parser};
use contract::cli::CommandLine;
use std::path::PathBuf;
use std::time::Duration;

/// In less time nothing is measured.
const LEAST_SECONDS: u64 = 5;
/// A day: no bucket of burst credits lasts longer.
const MOST_SECONDS: u64 = 86_400;

const EXAMPLES: &str = "\
Examples:
  pcprobe /var/lib/mysql --out probe.json               asks, then measures for a minute in a file of 1 GiB
  pcprobe /data --seconds 7200 --yes > probe.json       long enough for half an hour of burst credits to run out
  pcprobe /data --size 256MiB --engine own --yes        without fio, on a small disk

Exit codes: 0 done, 1 failed, 2 bad arguments, 77 cannot on this host, 130 interrupted.";

/// Measures the performance of a disk under its limits and reports it in one JSON
#[derive(Debug, Clone, Parser)]
#[command(name = "pcprobe", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// A folder on the disk to be measured, in which you may write
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Begin without asking
    #[arg(long)]
    pub yes: bool,
    /// Largest size of the file that is made there, as in 256MiB or 2GB
    #[arg(long = "size", value_name = "SIZE", default_value = "1GiB", value_parser = parse_size_bytes)]
    pub size_bytes: u64,
    /// Duration of the whole measurement
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = value_parser!(u64).range(LEAST_SECONDS..=MOST_SECONDS))]
    seconds: u64,
    /// Write the JSON into this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Engine that drives the disk
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: EngineChoice,
    /// Name the host and the folder in the JSON, which otherwise has neither
    #[arg(long)]
    pub name_host: bool,
}

impl CommandLine for Arguments {}

impl Arguments {
    /// Return the duration of all phases together.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
