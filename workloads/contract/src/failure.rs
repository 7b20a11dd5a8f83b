//! How a workload ends: one sentence on stderr and an exit code that says whose fault it was.

use std::fmt;
use std::process::ExitCode;

/// Why a workload could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It was tried and went wrong, or gave a wrong answer (exit code 1).
    Failed(String),
    /// The arguments make no sense together (exit code 2).
    BadArguments(String),
    /// This host cannot do it at all: no such system call, no such memory (exit code 77, as automake has it).
    CannotHere(String),
}

impl Failure {
    /// A failure of the ordinary kind: what was being done, and what the system said to it.
    pub fn of(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {cause}"))
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::BadArguments(_) => 2,
            Self::CannotHere(_) => 77,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::BadArguments(why) | Self::CannotHere(why) => out.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

/// Says the failure, if there is one, and gives the exit code of `main`.
#[must_use]
pub fn conclude(program: &str, outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{program}: {failure}");
    ExitCode::from(failure.exit_code())
}
