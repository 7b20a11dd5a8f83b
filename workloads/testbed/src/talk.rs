//! A program that is talked to, as whoever measures does.

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A running program.
#[derive(Debug)]
pub struct Talk {
    /// The process.
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    /// Starts it; `arguments` are parted by blanks.
    #[must_use]
    pub fn start(program: &str, arguments: &str) -> Self {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { stdin: child.stdin.take(), lines, child }
    }

    /// Sends this.
    pub fn say(&mut self, words: &str) {
        self.stdin.as_mut().unwrap().write_all(words.as_bytes()).unwrap();
    }

    /// The next line, which must be of this type.
    pub fn hear(&mut self, kind: &str) -> Value {
        let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["type"], kind, "{line}");
        line
    }

    /// Whether it is still there a while later.
    pub fn is_running(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        self.child.try_wait().unwrap().is_none()
    }

    /// Closes its input and gives its exit code and what it complained about.
    #[must_use]
    pub fn close_and_wait(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        let mut stderr = String::new();
        assert!(self.lines.next().is_none(), "nothing may follow the end");
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }

    /// The whole talk of a run that goes well; gives the closing line.
    #[must_use]
    pub fn through(program: &str, arguments: &str) -> Value {
        let mut talk = Self::start(program, arguments);
        assert_eq!(talk.hear("ready")["pid"], talk.child.id());
        assert!(talk.is_running(), "it must wait for go");
        talk.say("go\n");
        talk.hear("sample");
        let end = talk.hear("end");
        assert!(talk.is_running(), "it must stay until stdin closes");
        assert_eq!(talk.close_and_wait(), (Some(0), String::new()));
        end
    }

    /// Its input closes before `go`: it leaves quietly.
    pub fn given_up(program: &str, arguments: &str) {
        let mut talk = Self::start(program, arguments);
        talk.hear("ready");
        assert_eq!(talk.close_and_wait(), (Some(0), String::new()));
    }
}
