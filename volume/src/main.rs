//! Serves a simulated volume as a file (FUSE). README.md lists the parameters.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pcvolume::fuse::run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("pcvolume-fuse: {reason}");
            ExitCode::FAILURE
        }
    }
}
