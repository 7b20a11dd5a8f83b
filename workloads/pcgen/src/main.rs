//! `pcgen`: makes a dataset and says in one line of JSON what it holds.

use contract::{failure, line, Failure, Sidecar};
use pcgen::arguments::{self, Task};
use serde_json::{json, Value};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    failure::conclude("pcgen", run())
}

fn run() -> Result<(), Failure> {
    let Some(task) = arguments::read(std::env::args_os())? else {
        return Ok(());
    };
    hear_of_too_large_files();
    let started = Instant::now();
    let mut end = match &task {
        Task::Make(request) => {
            let made = pcgen::make(request)?;
            described(&request.out, &made.sidecar, "reused", made.reused)
        }
        Task::Verify(data) => described(data, &pcgen::verify(data)?, "verified", true),
    };
    end["seconds"] = started.elapsed().as_secs_f64().into();
    line::print(&end)
}

fn described(data: &Path, sidecar: &Sidecar, what: &str, is_so: bool) -> Value {
    json!({
        "type": "end",
        what: is_so,
        "file": data.display().to_string(),
        "sidecar": Sidecar::path_of(data).display().to_string(),
        "bytes": sidecar.size_bytes,
        "byte_sum": line::checksum(Some(sidecar.byte_sum)),
        "crc32c": format!("{:08x}", sidecar.crc32c),
    })
}

/// A write beyond the file size limit kills the process unless it ignores the signal; then the write fails and the
/// part file is removed, setrlimit(2).
fn hear_of_too_large_files() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
