//! A running program, driven through its handshake as the agent does.

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running program.
#[derive(Debug)]
pub struct WorkloadProcess {
    /// The process.
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WorkloadProcess {
    /// Start it; `arguments` are separated by blanks.
    #[must_use]
    pub fn start(program: &str, arguments: &str) -> Self {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin: child.stdin.take(), lines, child }
    }

    /// Write to its stdin.
    pub fn write(&mut self, words: &str) {
        self.stdin.as_mut().unwrap().write_all(words.as_bytes()).unwrap();
    }

    /// Read the next line, which must be of this type.
    pub fn read_line(&mut self, kind: &str) -> Value {
        let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["type"], kind, "{line}");
        line
    }

    /// Return whether it still runs after a short time.
    pub fn is_running(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        self.child.try_wait().unwrap().is_none()
    }

    /// Close its stdin. Returns its exit code and its stderr.
    #[must_use]
    pub fn close_and_wait(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        let mut stderr = String::new();
        assert!(self.lines.next().is_none(), "nothing may follow the end");
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }

    /// Run it through the whole handshake. Returns the closing line.
    #[must_use]
    pub fn through(program: &str, arguments: &str) -> Value {
        let mut process = Self::start(program, arguments);
        assert_eq!(process.read_line("ready")["pid"], process.child.id());
        assert!(process.is_running(), "it must wait for go");
        process.write("go\n");
        process.read_line("sample");
        let end = process.read_line("end");
        assert!(process.is_running(), "it must stay until stdin closes");
        assert_eq!(process.close_and_wait(), (Some(0), String::new()));
        end
    }

    /// Close its stdin before `go`: it must exit with 0 and without a message.
    pub fn cancelled(program: &str, arguments: &str) {
        let mut process = Self::start(program, arguments);
        process.read_line("ready");
        assert_eq!(process.close_and_wait(), (Some(0), String::new()));
    }
}
