//! `pcindex`: starts an application's index and says in lines of JSON how long that took.

use contract::{failure, Failure};
use pcindex::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcindex", run())
}

fn run() -> Result<(), Failure> {
    match arguments::read(std::env::args_os())? {
        Some(plan) => pcindex::measure(&plan),
        None => Ok(()),
    }
}
