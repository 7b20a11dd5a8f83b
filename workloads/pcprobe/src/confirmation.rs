//! The announcement of the measurement, and the confirmation by the user.

use crate::sizes::shown;
use contract::failure::OrFailure;
use contract::Failure;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// Return one sentence that announces the measurement.
pub fn announcement(
    folder: &Path,
    size_bytes: u64,
    time: Duration,
    free_bytes: u64,
    engine: &str,
) -> String {
    format!(
        "for about {} s this reads and writes as fast as {} allows, by {engine}, in a file of its own of {} ({} are \
         free); other users of that disk are slowed down meanwhile; the file has no name and ends with the program",
        time.as_secs(),
        folder.display(),
        shown(size_bytes),
        shown(free_bytes),
    )
}

/// Wait for confirmation, which needs a terminal. Fails with [`Failure::BadArguments`] without
/// confirmation.
pub fn ask(yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::BadArguments(
            "there is no terminal to ask at: say --yes to begin".to_owned(),
        ));
    }
    eprint!("begin? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    stdin.read_line(&mut answer).or_failed("cannot read the answer")?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::BadArguments("not begun".to_owned()))
}
