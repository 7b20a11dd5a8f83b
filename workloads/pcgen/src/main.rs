//! `pcgen`: makes a dataset and describes it in one line of JSON.

use contract::json_lines::{self, Checksum};
use contract::{cli, Failure, Sidecar};
use pcgen::arguments::{Arguments, Task};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    cli::run(run)
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    ignore_file_size_signal();
    let started = Instant::now();
    let mut end = match arguments.task() {
        Task::Make(request) => {
            let generated = pcgen::make(&request)?;
            End { reused: Some(generated.reused), ..End::new(&request.out, &generated.sidecar) }
        }
        Task::Verify(data) => {
            End { verified: Some(true), ..End::new(&data, &pcgen::verify(&data)?) }
        }
    };
    end.seconds = started.elapsed().as_secs_f64();
    json_lines::print(&end)
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "end")]
struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    reused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    file: String,
    sidecar: String,
    bytes: u64,
    byte_sum: Checksum,
    crc32c: String,
    seconds: f64,
}

impl End {
    fn new(data: &Path, sidecar: &Sidecar) -> Self {
        Self {
            reused: None,
            verified: None,
            file: data.display().to_string(),
            sidecar: Sidecar::path_of(data).display().to_string(),
            bytes: sidecar.size_bytes,
            byte_sum: Checksum(sidecar.byte_sum),
            crc32c: format!("{:08x}", sidecar.crc32c),
            seconds: 0.0,
        }
    }
}

/// Ignore SIGXFSZ, which a write beyond the file size limit sends. The write then fails instead of
/// killing the process, and the part file is removed, setrlimit(2).
fn ignore_file_size_signal() {
    // SAFETY: an ignored signal runs no code of this process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
