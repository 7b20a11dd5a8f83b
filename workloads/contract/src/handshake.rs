//! The handshake as an option of the command line.

use crate::Failure;

/// Whether the process speaks with the agent or simply runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Handshake {
    /// Start at once and exit at once, for use by hand
    #[arg(long = "no-handshake")]
    is_skipped: bool,
}

impl Handshake {
    /// Print `ready` and wait for `go`. False if stdin closed instead: the run was cancelled.
    ///
    /// # Errors
    /// If stdout or stdin breaks, or another word than `go` arrives.
    pub fn wait_for_go(self) -> Result<bool, Failure> {
        self.library().wait_for_go()
    }

    /// Like [`Self::wait_for_go`], and report how many bytes of its files the set-up dropped from
    /// the page cache. Otherwise the agent would take this for the work of another process.
    ///
    /// # Errors
    /// If stdout or stdin breaks, or another word than `go` arrives.
    pub fn wait_for_go_having_evicted(self, bytes: u64) -> Result<bool, Failure> {
        self.library().wait_for_go_having_evicted(bytes)
    }

    /// Wait until stdin closes, so that the agent can still read the counters of the finished
    /// process.
    ///
    /// # Errors
    /// If stdin breaks.
    pub fn wait_for_close(self) -> Result<(), Failure> {
        self.library().wait_for_close()
    }

    fn library(self) -> pagecage_workload::Handshake {
        if self.is_skipped {
            pagecage_workload::Handshake::skipped()
        } else {
            pagecage_workload::Handshake::default()
        }
    }
}
