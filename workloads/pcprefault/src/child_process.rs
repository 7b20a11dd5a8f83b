//! One of several processes that use the same file: this program again, driven through its
//! handshake.

use contract::failure::OrFailure;
use contract::Failure;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A child process that is ready, or has finished and keeps its memory.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    /// Start one with these arguments and wait until its set-up is done. Fails if it cannot be
    /// started, or ends before it is ready; it has reported the reason on stderr then.
    pub fn start(arguments: &[OsString]) -> Result<Self, Failure> {
        let action = "cannot start another process";
        let mut child = Command::new(std::env::current_exe().or_cannot_here(action)?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .or_cannot_here(action)?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::Failed("another process has no output".to_owned()));
        };
        let mut process = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        process.read_line("ready")?;
        Ok(process)
    }

    /// Let it begin. Fails if it has ended.
    pub fn go(&mut self) -> Result<(), Failure> {
        let written = self.stdin.as_mut().map(|stdin| stdin.write_all(b"go\n"));
        written.unwrap_or(Ok(())).or_failed("another process is gone")
    }

    /// Wait for its closing line. It keeps its memory until it is dropped. Fails if it ended
    /// without one.
    pub fn end(&mut self) -> Result<Value, Failure> {
        self.read_line("sample")?;
        self.read_line("end")
    }

    /// Return its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn read_line(&mut self, kind: &str) -> Result<Value, Failure> {
        let line = self.lines.next().and_then(Result::ok).unwrap_or_default();
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        if value["type"] == kind {
            return Ok(value);
        }
        let cannot = self.child.wait().is_ok_and(|status| status.code() == Some(77));
        let reason = format!("another process ended without its line {kind:?}");
        Err(if cannot { Failure::CannotHere(reason) } else { Failure::Failed(reason) })
    }
}

impl Drop for ChildProcess {
    /// Close its input, which lets it exit.
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}
