//! One of several processes that use the same file: this program again, spoken to as anybody would.

use crate::arguments::{Compute, Plan, When};
use contract::Failure;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process of ours that stands ready, or has done and keeps its memory.
#[derive(Debug)]
pub struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Member {
    /// Starts one and waits until its set-up is done.
    ///
    /// # Errors
    /// When it cannot be started; when it refuses, it has said why on stderr already.
    pub fn start(plan: &Plan) -> Result<Self, Failure> {
        let failed = |cause| Failure::CannotHere(format!("cannot start another process: {cause}"));
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(arguments(plan))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::Failed("another process has no output".to_owned()));
        };
        let mut member = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        member.hear("ready")?;
        Ok(member)
    }

    /// Lets it begin.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go(&mut self) -> Result<(), Failure> {
        let told = self.stdin.as_mut().map(|stdin| stdin.write_all(b"go\n"));
        told.unwrap_or(Ok(())).map_err(|cause| Failure::of("another process is gone", cause))
    }

    /// Waits until it has done and gives its closing line. It keeps its memory until it is dropped.
    ///
    /// # Errors
    /// When it ended without one.
    pub fn end(&mut self) -> Result<Value, Failure> {
        self.hear("sample")?;
        self.hear("end")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn hear(&mut self, kind: &str) -> Result<Value, Failure> {
        let line = self.lines.next().and_then(Result::ok).unwrap_or_default();
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        if value["type"] == kind {
            return Ok(value);
        }
        let cannot = self.child.wait().is_ok_and(|status| status.code() == Some(77));
        let why = format!("another process ended without its line {kind:?}");
        Err(if cannot { Failure::CannotHere(why) } else { Failure::Failed(why) })
    }
}

impl Drop for Member {
    /// Closing its input lets it leave.
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// The plan of one process as it would be typed.
fn arguments(plan: &Plan) -> Vec<OsString> {
    let compute = match plan.compute {
        Compute::Time(time) => ["--compute-seconds".to_owned(), time.as_secs_f64().to_string()],
        Compute::SecondsPerGib(seconds) => ["--compute-seconds-per-gib".to_owned(), seconds.to_string()],
    };
    let when = if plan.when == When::Before { "before" } else { "beside" };
    let words = [
        ["--method".to_owned(), plan.method.name().to_owned()],
        ["--when".to_owned(), when.to_owned()],
        ["--prefault-threads".to_owned(), plan.prefault_threads.to_string()],
        ["--compute-threads".to_owned(), plan.compute_threads.to_string()],
        compute,
        ["--sum".to_owned(), plan.sum.name().to_owned()],
    ];
    let mut all: Vec<OsString> = words.into_iter().flatten().map(OsString::from).collect();
    all.extend([OsString::from("--file"), plan.file.clone().into_os_string()]);
    // Every process would choose the same CPUs for its threads.
    all.push("--unpinned".into());
    if let Some(sidecar) = &plan.sidecar {
        all.extend([OsString::from("--expect-sidecar"), sidecar.clone().into_os_string()]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::read;

    #[test]
    fn a_member_is_asked_for_the_same() {
        let words =
            "pcprefault --file data --expect-sidecar data.json --method touch --when beside --sum byte \
                     --prefault-threads 2 --compute-threads 3 --compute-seconds-per-gib 1.5 --processes 4";
        let plan = read(words.split_whitespace().map(OsString::from)).unwrap().unwrap();
        let name = [OsString::from("pcprefault")];
        let member = read(name.into_iter().chain(arguments(&plan))).unwrap().unwrap();
        let alone = Plan { processes: None, pinned: false, ..plan };
        assert_eq!(format!("{member:?}"), format!("{alone:?}"));
    }
}
