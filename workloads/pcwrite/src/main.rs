//! `pcwrite`: writes a file and reports in lines of JSON what that cost and what reached the disk.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcwrite::measure)
}
