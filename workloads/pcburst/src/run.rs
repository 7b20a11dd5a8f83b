//! One run from end to end: fill the page cache, wait for `go`, take memory, report.

use crate::arguments::Arguments;
use crate::burst::Burst;
use crate::page_cache_state::cached_bytes;
use crate::report::Report;
use contract::timing::timed;
use contract::{json_lines, Failure};

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the page cache cannot be filled, or memory cannot be had or does not keep its content.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let bytes = arguments.amount.bytes()?;
    let mut fill_seconds = 0.0;
    let filled = timed(&mut fill_seconds, || arguments.page_cache.fill())?;
    if !arguments.handshake.wait_for_go()? {
        return Ok(());
    }
    let before = cached_bytes(filled.as_ref());
    let burst = Burst::take(bytes, &arguments.burst)?;
    let after = cached_bytes(filled.as_ref());
    let report = Report { fill_seconds, before, after, sums: burst.found_and_expected(), burst };
    json_lines::print(&report.sample())?;
    json_lines::print(&report.end())?;
    arguments.handshake.wait_for_close()?;
    if report.is_right() {
        return Ok(());
    }
    Err(Failure::Failed("the memory does not hold what was written to it".to_owned()))
}
