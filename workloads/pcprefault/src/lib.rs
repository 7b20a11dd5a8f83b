//! Loads a file ahead of its use, then uses every byte of it, and times the two separately.
//!
//! A mapping is made at once and read only when it is touched. A program that will need all of it
//! can have it read beforehand: by advising the kernel, by touching every page, or by an ordinary
//! read instead of a mapping.

mod arguments;
mod calculation;
mod child_process;
mod memory;
mod method;
mod parts;
mod probe;
mod report;
mod run;
mod shared_run;
mod stall;
mod workers;

use arguments::Arguments;
use contract::sidecar::require_expected_sum;
use contract::Failure;

/// Do what the arguments say, in this process or in several, and print the lines.
///
/// # Errors
/// If the file cannot be opened, the kernel rejects the method, or the bytes do not have the
/// expected sum.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.processes.count().is_none() {
        return run::measure(arguments);
    }
    let ok = shared_run::measure(
        &arguments.processes,
        &arguments.of_one_process(),
        arguments.handshake,
    )?;
    require_expected_sum(&arguments.file, ok)
}
