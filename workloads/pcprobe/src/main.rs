//! `pcprobe`: measures what a disk gives under the limits that it stands under, and says so in one JSON.

use contract::{failure, Failure};
use pcprobe::arguments;
use std::process::ExitCode;

/// What a shell gives a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INTERRUPTED),
        Err(failure) => failure::conclude("pcprobe", Err(failure)),
    }
}

fn run() -> Result<bool, Failure> {
    match arguments::read(std::env::args_os())? {
        None => Ok(true),
        Some(plan) => pcprobe::measure(&plan),
    }
}
