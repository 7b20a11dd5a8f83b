//! The command line of `pcprefault`.

use crate::calculation::ComputeOptions;
use crate::method::LoadOptions;
use crate::shared_run::ProcessOptions;
use crate::workers::UseOptions;
use clap::Parser;
use contract::cli::CommandLine;
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pcprefault --file data.bin --method map-populate --no-handshake
  pcprefault --file data.bin --method touch --when beside --compute-threads 3 --compute-seconds 2 --no-handshake
  pcprefault --file data.bin --method populate-read --processes 4 --stagger-ms 500 --no-handshake

Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 cannot on this host.";

/// Loads a file ahead of its use, then uses every byte of it, and reports what each cost
#[derive(Debug, Clone, Parser)]
#[command(name = "pcprefault", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The file that is loaded and used
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Its bytes must have the sum that this sidecar states
    #[arg(long = "expect-sidecar", value_name = "FILE")]
    pub sidecar: Option<PathBuf>,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub compute: ComputeOptions,
    #[command(flatten)]
    pub using: UseOptions,
    #[command(flatten)]
    pub processes: ProcessOptions,
    #[command(flatten)]
    pub handshake: Handshake,
}

impl CommandLine for Arguments {
    fn validate(&self) -> Result<(), Failure> {
        self.load.validate()
    }
}

impl Arguments {
    /// Return the command line of one of several processes. They are left to the scheduler: each
    /// would otherwise choose the same CPUs for its threads.
    pub fn of_one_process(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--file".into(), self.file.clone().into()];
        if let Some(sidecar) = &self.sidecar {
            words.extend(["--expect-sidecar".into(), sidecar.clone().into()]);
        }
        let options = [self.load.words(), self.compute.words(), self.using.words()];
        words.extend(options.into_iter().flatten().map(OsString::from));
        words.push("--unpinned".into());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::cli::parse;

    #[test]
    fn one_of_several_processes_has_the_same_options() {
        let words =
            "pcprefault --file data --expect-sidecar data.json --method touch --when beside --sum byte \
                     --prefault-threads 2 --compute-threads 3 --compute-seconds-per-gib 1.5";
        let arguments: Arguments =
            parse(format!("{words} --processes 4").split_whitespace()).unwrap().unwrap();
        let name = [OsString::from("pcprefault")];
        let one: Arguments =
            parse(name.into_iter().chain(arguments.of_one_process())).unwrap().unwrap();
        let alone: Arguments =
            parse(format!("{words} --unpinned").split_whitespace()).unwrap().unwrap();
        assert_eq!(format!("{one:?}"), format!("{alone:?}"));
    }
}
