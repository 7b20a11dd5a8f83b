//! A program that runs to its end without a handshake.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// The result of a finished program.
#[derive(Debug)]
pub struct Run {
    /// Its name, with which its messages begin.
    pub program: String,
    /// Its exit code; None if a signal ended it.
    pub code: Option<i32>,
    /// Its lines.
    pub lines: Vec<Value>,
    /// Its stderr.
    pub stderr: String,
}

impl Run {
    /// Run a program without a handshake; `arguments` are separated by blanks.
    #[must_use]
    pub fn by_hand(program: &str, arguments: &str) -> Self {
        let words = arguments.split_whitespace();
        let output =
            Command::new(program).args(words).arg("--no-handshake").stdin(Stdio::null()).output();
        Self::of(program, &output.unwrap())
    }

    /// Read the result of a program.
    #[must_use]
    pub fn of(program: &str, output: &Output) -> Self {
        let stdout = String::from_utf8(output.stdout.clone()).unwrap();
        Self {
            program: program.rsplit('/').next().unwrap_or(program).to_owned(),
            code: output.status.code(),
            lines: stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Return the closing line of a successful run.
    #[must_use]
    pub fn end(&self) -> &Value {
        self.last("end")
    }

    /// Return the last line of a successful run, which must be of this type.
    #[must_use]
    pub fn last(&self, kind: &str) -> &Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        let last = self.lines.last().unwrap();
        assert_eq!(last["type"], kind, "{last}");
        last
    }

    /// Return a figure of the `response`; None if it is null.
    #[must_use]
    pub fn response(&self, name: &str) -> Option<f64> {
        let found = &self.end()["response"][name];
        assert!(found.is_number() || self.end()["response"].get(name).is_some(), "no {name}");
        found.as_f64()
    }

    /// Check that it printed one sentence on stderr and exited with this code.
    pub fn assert_refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        let begins = self.stderr.starts_with(&format!("{}: ", self.program));
        assert!(begins && self.stderr.contains(words), "{}", self.stderr);
    }
}
