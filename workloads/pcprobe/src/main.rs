//! `pcprobe`: measures the performance of a disk under its limits and reports it in one JSON.

use contract::{cli, failure, Failure};
use pcprobe::arguments::Arguments;
use std::process::ExitCode;

/// The exit code of a program that SIGINT ended, as shells report it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INTERRUPTED),
        Err(failure) => failure::conclude("pcprobe", Err(failure)),
    }
}

fn run() -> Result<bool, Failure> {
    cli::parse::<Arguments>(std::env::args_os())?.as_ref().map_or(Ok(true), pcprobe::measure)
}
