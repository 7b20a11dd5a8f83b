//! A dataset of its own for each test, and the real program run on it.
#![allow(dead_code)] // each test file uses a part

use contract::Sidecar;
use pcgen::{make, Fill, Request};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Deliberately no multiple of a page, a block or a MiB.
pub const SIZE_BYTES: u64 = (3 << 20) + 4096 + 77;

/// A dataset in a folder of its own, removed when dropped.
pub struct Dataset {
    folder: PathBuf,
    pub file: PathBuf,
    pub sidecar: Sidecar,
}

impl Dataset {
    pub fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("data");
        let request =
            Request { out: file.clone(), size_bytes: SIZE_BYTES, seed: 5, fill: Fill::Random, force: false };
        let sidecar = make(&request).unwrap().sidecar;
        Self { folder, file, sidecar }
    }

    /// `pcread` on this dataset with further arguments, by hand.
    pub fn read(&self, arguments: &str) -> Run {
        let output = self.command(arguments).arg("--no-handshake").stdin(Stdio::null()).output();
        Run::of(&output.unwrap())
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcread"));
        command.arg("--file").arg(&self.file).args(arguments.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn sidecar_path(&self) -> String {
        Sidecar::path_of(&self.file).display().to_string()
    }
}

impl Drop for Dataset {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What a finished `pcread` has left.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub lines: Vec<Value>,
    pub stderr: String,
}

impl Run {
    pub fn of(output: &Output) -> Self {
        let stdout = String::from_utf8(output.stdout.clone()).unwrap();
        Self {
            code: output.status.code(),
            lines: stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// The closing line of a run that went well.
    pub fn end(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.lines.last().unwrap()
    }

    /// One sentence on stderr and this exit code.
    pub fn assert_refused(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("pcread: ") && self.stderr.contains(words), "{}", self.stderr);
    }
}
