//! The command line of `pcscan`.

use crate::buffer::ALIGN_BYTES;
use crate::dataset::{DatasetOptions, Io};
use crate::exec::{Exec, ExecOptions};
use crate::fixes::{Fix, FixOptions};
use crate::heartbeat::HeartbeatOptions;
use crate::hints::Hints;
use crate::scan::WorkOptions;
use clap::Parser;
use contract::cli::CommandLine;
use contract::page_cache::page_bytes;
use contract::sidecar::STRIDE_BYTES;
use contract::{Failure, Handshake};

const EXAMPLES: &str = "\
Examples:
  pcscan --files a.bin b.bin --expect-sidecars --no-handshake                one thread, mapped files
  pcscan --files a.bin b.bin --exec async-ct --heartbeat-us 1000             the hazard: who waits is the executor
  pcscan --files a.bin b.bin --exec async-ct --fix uring-madvise --heartbeat-us 1000
  pcscan --files a.bin b.bin --exec async-ct --io tokio-fs --no-handshake    what an async program usually does

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

/// Scans several files at once, by threads or on an async executor, and watches a heartbeat beside
/// it
#[derive(Debug, Clone, Parser)]
#[command(name = "pcscan", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub dataset: DatasetOptions,
    #[command(flatten)]
    pub exec: ExecOptions,
    #[command(flatten)]
    pub fix: FixOptions,
    #[command(flatten)]
    pub hints: Hints,
    #[command(flatten)]
    pub work: WorkOptions,
    #[command(flatten)]
    pub heartbeat: HeartbeatOptions,
    #[command(flatten)]
    pub handshake: Handshake,
}

impl CommandLine for Arguments {
    fn validate(&self) -> Result<(), Failure> {
        let Self { dataset, exec, fix, work, .. } = self;
        let (is_mapped, is_async, has_fix) =
            (dataset.io == Io::Mmap, exec.exec.is_async(), fix.fix != Fix::None);
        let waits = matches!(dataset.io, Io::Mmap | Io::Read | Io::Conventional);
        let about_mappings = self.hints.is_about_mappings() || work.prefetch.distance().is_some();
        let has_known_sum = [1, STRIDE_BYTES].contains(&work.stride);
        let wrong = [
            (
                !work.stride.is_power_of_two() || work.stride > 4096,
                "--stride must be a power of two, 4096 at most",
            ),
            (!self.has_whole_pages(), "--buf must be whole pages, and --window whole bufs"),
            (!is_async && !waits, "--io other than mmap and read needs --exec async-*"),
            (!is_async && has_fix, "--fix is about an executor: it needs --exec async-*"),
            (!is_mapped && has_fix, "--fix is about mapped files: it needs --io mmap"),
            (
                !is_mapped && about_mappings,
                "--advice, --mlock and --prefetch-distance are about mapped files: they need --io mmap",
            ),
            (
                fix.fix == Fix::BlockInPlace && exec.exec != Exec::AsyncMt,
                "--fix block-in-place needs --exec async-mt",
            ),
            (dataset.expect_sidecars && !has_known_sum, "sidecars know the sums of --stride 1 and 512 only"),
            (
                dataset.expect_sidecars && work.discard_sum,
                "--discard-sum leaves nothing to compare with --expect-sidecars",
            ),
        ];
        let first = wrong.iter().find(|(is_so, _)| *is_so);
        first.map_or(Ok(()), |(_, reason)| Err(Failure::BadArguments((*reason).to_owned())))
    }
}

impl Arguments {
    fn has_whole_pages(&self) -> bool {
        let (piece, window) = (self.dataset.piece_bytes, self.fix.window_bytes);
        let is_whole = piece > 0 && piece % page_bytes() == 0 && piece % ALIGN_BYTES == 0;
        is_whole && window > 0 && window % piece == 0
    }
}
