//! `pcread`: reads a working set and reports in lines of JSON what it cost.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcread::run)
}
