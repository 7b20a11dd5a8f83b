//! The handshake: `ready`, then `go` on stdin, then work, then wait until stdin closes.
//!
//! It lets whoever measures read the kernel's counters exactly around the measured part, while the process is
//! still there to be read.

use crate::{line, Failure};
use std::io::{BufRead, Read};

/// Whether the process talks with whoever started it, or simply runs (`--no-handshake`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// Say `ready`, wait for `go`, and stay until stdin closes.
    Spoken,
    /// Start at once and leave at once: for use by hand.
    Skipped,
}

impl Handshake {
    /// Says `ready` and waits for `go`. False when stdin closed instead: nobody wants the work any more.
    ///
    /// # Errors
    /// When stdout or stdin breaks, or another word than `go` arrives.
    pub fn wait_for_go(self) -> Result<bool, Failure> {
        self.wait_for_go_having_evicted(0)
    }

    /// The same, saying that the set-up dropped so many bytes of the files from the page cache: whoever measures would
    /// take it for the work of another process.
    ///
    /// # Errors
    /// When stdout or stdin breaks, or another word than `go` arrives.
    pub fn wait_for_go_having_evicted(self, bytes: u64) -> Result<bool, Failure> {
        if self == Self::Skipped {
            return Ok(true);
        }
        line::print(&line::ready(bytes))?;
        let mut word = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut word)
            .map_err(|cause| Failure::of("cannot read stdin", cause))?;
        match word.trim_end() {
            "go" => Ok(true),
            "" if word.is_empty() => Ok(false),
            other => Err(Failure::Failed(format!("expected the line \"go\" on stdin, found {other:?}"))),
        }
    }

    /// Waits until stdin closes, so that the counters of the finished process can still be read.
    ///
    /// # Errors
    /// When stdin breaks.
    pub fn wait_for_close(self) -> Result<(), Failure> {
        if self == Self::Skipped {
            return Ok(());
        }
        let mut ignored = [0_u8; 64];
        let mut stdin = std::io::stdin().lock();
        while stdin.read(&mut ignored).map_err(|cause| Failure::of("cannot read stdin", cause))? > 0 {}
        Ok(())
    }
}
