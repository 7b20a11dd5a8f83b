//! `pcscan`: scans several files at once and reports in lines of JSON what it cost.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcscan::measure)
}
