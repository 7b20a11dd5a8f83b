//! Runs of `pcread` on a dataset of its own for each test.
#![allow(dead_code, unused_imports)] // each test file uses a part

use std::ops::Deref;
use std::process::{Command, Stdio};
pub use testbed::{Run, SIZE_BYTES};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pcread");

/// A dataset that `pcread` reads.
pub struct Dataset(testbed::Dataset);

impl Dataset {
    pub fn new(test: &str) -> Self {
        Self(testbed::Dataset::new(env!("CARGO_TARGET_TMPDIR"), test))
    }

    /// Run `pcread` on this dataset with further arguments, without a handshake.
    pub fn read(&self, arguments: &str) -> Run {
        Run::by_hand(PROGRAM, &self.arguments(arguments))
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(self.arguments(arguments).split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn arguments(&self, further: &str) -> String {
        format!("--file {} {further}", self.file.display())
    }
}

impl Deref for Dataset {
    type Target = testbed::Dataset;

    fn deref(&self) -> &testbed::Dataset {
        &self.0
    }
}
