//! A program run by hand, to its end.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// What a finished program has left.
#[derive(Debug)]
pub struct Run {
    /// Its name, which begins whatever it complains about.
    pub program: String,
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// Its lines.
    pub lines: Vec<Value>,
    /// What it complained about.
    pub stderr: String,
}

impl Run {
    /// Runs a program without a handshake; `arguments` are parted by blanks.
    #[must_use]
    pub fn by_hand(program: &str, arguments: &str) -> Self {
        let words = arguments.split_whitespace();
        let output = Command::new(program).args(words).arg("--no-handshake").stdin(Stdio::null()).output();
        Self::of(program, &output.unwrap())
    }

    /// Reads what a program has left.
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

    /// The closing line of a run that went well.
    #[must_use]
    pub fn end(&self) -> &Value {
        self.last("end")
    }

    /// The last line of a run that went well, which must be of this type.
    #[must_use]
    pub fn last(&self, kind: &str) -> &Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        let last = self.lines.last().unwrap();
        assert_eq!(last["type"], kind, "{last}");
        last
    }

    /// One of its own figures; none where it is null.
    #[must_use]
    pub fn response(&self, name: &str) -> Option<f64> {
        let found = &self.end()["response"][name];
        assert!(found.is_number() || self.end()["response"].get(name).is_some(), "no {name}");
        found.as_f64()
    }

    /// One sentence on stderr and this exit code.
    pub fn assert_refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        let begins = self.stderr.starts_with(&format!("{}: ", self.program));
        assert!(begins && self.stderr.contains(words), "{}", self.stderr);
    }
}
