//! Failure of a workload: one sentence on stderr and an exit code for the kind of failure.

use std::error::Error;
use std::fmt::{Display, Formatter, Result as Written};
use std::process::ExitCode;

/// Why a workload could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The attempt went wrong, or its result is wrong (exit code 1).
    Failed(String),
    /// The arguments make no sense together (exit code 2).
    BadArguments(String),
    /// This host cannot do it at all: no such system call, not enough memory (exit code 77, as in
    /// automake).
    CannotHere(String),
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Written {
        match self {
            Self::Failed(text) | Self::BadArguments(text) | Self::CannotHere(text) => {
                formatter.write_str(text)
            }
        }
    }
}

impl Error for Failure {}

impl Failure {
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

/// Errors of the system as failures: what was being done, then the cause.
pub trait OrFailure<T> {
    /// Turn an error into [`Failure::Failed`].
    ///
    /// # Errors
    /// The error, after `action`.
    fn or_failed(self, action: impl Display) -> Result<T, Failure>;

    /// Turn an error into [`Failure::CannotHere`].
    ///
    /// # Errors
    /// The error, after `action`.
    fn or_cannot_here(self, action: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> OrFailure<T> for Result<T, E> {
    fn or_failed(self, action: impl Display) -> Result<T, Failure> {
        self.map_err(|cause| Failure::Failed(format!("{action}: {cause}")))
    }

    fn or_cannot_here(self, action: impl Display) -> Result<T, Failure> {
        self.map_err(|cause| Failure::CannotHere(format!("{action}: {cause}")))
    }
}

/// Print the failure, if there is one, and return the exit code of `main`.
#[must_use]
pub fn conclude(program: &str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
