//! `pcburst`: takes memory as fast as it can and reports in lines of JSON how long each MiB took.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcburst::measure)
}
