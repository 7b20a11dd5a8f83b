//! `pcprefault`: loads a file ahead of its use and says in lines of JSON what that and the use cost.

use contract::{failure, Failure};
use pcprefault::arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::conclude("pcprefault", run())
}

fn run() -> Result<(), Failure> {
    let Some(plan) = arguments::read(std::env::args_os())? else {
        return Ok(());
    };
    match plan.processes {
        None => pcprefault::measure(&plan),
        Some(processes) => pcprefault::measure_together(&plan, processes),
    }
}
