//! Reads a working set in blocks and reports what it cost.
//!
//! One loop does the measured work for every source. Treatments differ only in the source of the
//! bytes, the way of reading and the order of visits.

mod advice;
mod arguments;
mod block_reader;
mod block_sequence;
mod blocks;
mod cage;
mod clock;
mod coverage;
mod events;
mod expected;
mod frames;
mod measurement;
mod order;
mod overflowing_order;
mod pass;
mod positioned_read;
mod proc;
mod reader;
mod report;
mod residency;
mod response;
mod ring;
mod source;
mod stride;
mod team;

use arguments::Arguments;
use contract::Failure;

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the source is not available, or a full pass does not have the expected sum.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.self_test {
        return coverage::self_test(&arguments.source, &arguments.sequence);
    }
    measurement::measure(arguments)
}
