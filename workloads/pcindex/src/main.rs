//! `pcindex`: starts an application's index and reports in lines of JSON how long that took.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcindex::measure)
}
