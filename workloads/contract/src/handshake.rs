//! The handshake: `ready`, then `go` on stdin, then the work, then a wait until stdin closes.
//!
//! The agent reads the kernel's counters exactly around the measured part, while the process still
//! exists.

use crate::failure::OrFailure;
use crate::json_lines::{self, Ready};
use crate::Failure;
use std::io::{BufRead, Read};

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
        self.wait_for_go_having_evicted(0)
    }

    /// Like [`Self::wait_for_go`], and report how many bytes of its files the set-up dropped from
    /// the page cache. Otherwise the agent would take this for the work of another process.
    ///
    /// # Errors
    /// If stdout or stdin breaks, or another word than `go` arrives.
    pub fn wait_for_go_having_evicted(self, bytes: u64) -> Result<bool, Failure> {
        if self.is_skipped {
            return Ok(true);
        }
        let evicted_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        json_lines::print(&Ready { pid: std::process::id(), evicted_bytes })?;
        let mut word = String::new();
        std::io::stdin().lock().read_line(&mut word).or_failed("cannot read stdin")?;
        match word.trim_end() {
            "go" => Ok(true),
            "" if word.is_empty() => Ok(false),
            other => {
                Err(Failure::Failed(format!("expected the line \"go\" on stdin, found {other:?}")))
            }
        }
    }

    /// Wait until stdin closes, so that the agent can still read the counters of the finished
    /// process.
    ///
    /// # Errors
    /// If stdin breaks.
    pub fn wait_for_close(self) -> Result<(), Failure> {
        if self.is_skipped {
            return Ok(());
        }
        std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink())
            .or_failed("cannot read stdin")
            .map(drop)
    }
}
