//! The handshake: `ready`, then `go` on stdin, then the work, then a wait until stdin closes.
//!
//! The agent reads the kernel's counters exactly around the measured part, while the process still
//! exists.

use crate::failure::OrFailure;
use crate::{Failure, Object};
use std::io::{BufRead, Read, Write};

/// The version of the protocol that this library speaks.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longer than `go` with its newline; more is not read.
const LONGEST_WORD_BYTES: u64 = 64;

/// Whether the process speaks with the agent or simply runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handshake {
    is_skipped: bool,
}

impl Handshake {
    /// Start at once and exit at once, for use by hand. Samples and the end are printed.
    #[must_use]
    pub fn skipped() -> Self {
        Self { is_skipped: true }
    }

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
        print_line(&ready(bytes).text()?)?;
        read_go(&mut std::io::stdin().lock())
    }

    /// Print one `sample`: what a part of the work did.
    ///
    /// # Errors
    /// If a number is not finite, or stdout breaks.
    pub fn sample(self, content: Object) -> Result<(), Failure> {
        print_line(&Object::message("sample", content).text()?)
    }

    /// Print `stopped`: the measured part ends here, and more work follows before `end`.
    ///
    /// # Errors
    /// If stdout breaks.
    pub fn stopped(self) -> Result<(), Failure> {
        print_line(&Object::message("stopped", Object::new()).text()?)
    }

    /// Print `end`, which needs `seconds`, and wait until stdin closes.
    ///
    /// # Errors
    /// If a number is not finite, or stdout or stdin breaks.
    pub fn end(self, content: Object) -> Result<(), Failure> {
        print_line(&Object::message("end", content).text()?)?;
        self.wait_for_close()
    }

    /// Wait until stdin closes, so that the agent can still read the counters of the finished
    /// process. [`Self::end`] does this.
    ///
    /// # Errors
    /// If stdin breaks.
    pub fn wait_for_close(self) -> Result<(), Failure> {
        if self.is_skipped {
            return Ok(());
        }
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())
            .or_failed("cannot read stdin")
            .map(drop)
    }
}

/// Print one line that was serialised elsewhere, and flush it, because the agent acts on it.
///
/// # Errors
/// If stdout is closed.
pub fn print_line(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).or_failed("cannot write to stdout")
}

fn ready(evicted_bytes: u64) -> Object {
    let content = Object::new().with("protocol", PROTOCOL_VERSION).with("pid", std::process::id());
    let content = match evicted_bytes {
        0 => content,
        bytes => content.with("evicted_bytes", bytes),
    };
    Object::message("ready", content)
}

fn read_go(input: &mut impl BufRead) -> Result<bool, Failure> {
    let mut word = Vec::new();
    input.take(LONGEST_WORD_BYTES).read_until(b'\n', &mut word).or_failed("cannot read stdin")?;
    match word.as_slice() {
        b"go\n" => Ok(true),
        b"" => Ok(false),
        other => {
            let found = String::from_utf8_lossy(other);
            let word = found.trim_end_matches('\n');
            Err(Failure::Failed(format!("expected the line \"go\" on stdin, found {word:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_states_the_version() {
        let pid = std::process::id();
        let line = |bytes| ready(bytes).text().unwrap();
        assert_eq!(line(0), format!("{{\"type\":\"ready\",\"protocol\":1,\"pid\":{pid}}}"));
        assert!(line(7).ends_with(",\"evicted_bytes\":7}"));
    }

    #[test]
    fn only_the_line_go_begins_the_work() {
        let read = |mut bytes: &[u8]| read_go(&mut bytes);
        assert_eq!((read(b"go\n"), read(b"")), (Ok(true), Ok(false)));
        for wrong in [&b"go"[..], b"gone\n", b" go\n", b"go\r\n", b"\n", b"\xff\n", &[b'x'; 4096]] {
            let text = read(wrong).unwrap_err().to_string();
            assert!(text.contains("expected the line \"go\"") && text.len() < 500, "{text}");
        }
    }

    #[test]
    fn what_follows_go_is_not_read() {
        let mut bytes: &[u8] = b"go\nmore";
        assert_eq!(read_go(&mut bytes), Ok(true));
        assert_eq!(bytes, b"more");
    }
}
