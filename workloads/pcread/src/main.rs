//! `pcread`: reads a working set and says in lines of JSON what it cost.

use contract::{failure, Failure};
use pcread::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcread", run())
}

fn run() -> Result<(), Failure> {
    let Some(plan) = arguments::read(std::env::args_os())? else {
        return Ok(());
    };
    if plan.self_test {
        return pcread::self_test(&plan);
    }
    pcread::measure(&plan)
}
