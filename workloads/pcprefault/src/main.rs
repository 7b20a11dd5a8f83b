//! `pcprefault`: loads a file ahead of its use and reports in lines of JSON what loading and use
//! cost.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::cli::run(pcprefault::measure)
}
