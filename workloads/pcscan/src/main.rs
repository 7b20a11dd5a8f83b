//! `pcscan`: scans several files at once and says in lines of JSON what it cost.

use contract::{failure, Failure};
use pcscan::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcscan", run())
}

fn run() -> Result<(), Failure> {
    match arguments::read(std::env::args_os())? {
        Some(plan) => pcscan::measure(&plan),
        None => Ok(()),
    }
}
