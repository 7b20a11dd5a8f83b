//! `pcburst`: takes memory as fast as it can and says in lines of JSON how long each MiB took.

use contract::{failure, Failure};
use pcburst::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcburst", run())
}

fn run() -> Result<(), Failure> {
    match arguments::read(std::env::args_os())? {
        None => Ok(()),
        Some(plan) => pcburst::measure(&plan),
    }
}
