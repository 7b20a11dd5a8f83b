//! `pcwrite`: writes a file and says in lines of JSON what that cost and what reached the disk.

use contract::{failure, Failure};
use pcwrite::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcwrite", run())
}

fn run() -> Result<(), Failure> {
    match arguments::read(std::env::args_os())? {
        None => Ok(()),
        Some(plan) => pcwrite::measure(&plan),
    }
}
