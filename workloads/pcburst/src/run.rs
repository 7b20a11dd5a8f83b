//! One run from end to end: fill the page cache, wait for `go`, take memory, report.

use crate::arguments::Plan;
use crate::burst::Burst;
use crate::page_cache_state::{cached_and_unwritten_bytes, reach};
use crate::report::Report;
use contract::{line, Failure};
use std::time::Instant;

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the page cache cannot be filled, memory cannot be had, or does not keep what was written to it.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    let begun = Instant::now();
    let filled = reach(plan)?;
    let fill_seconds = begun.elapsed().as_secs_f64();
    if !plan.handshake.wait_for_go()? {
        return Ok(());
    }
    let before = cached_and_unwritten_bytes(filled.as_ref());
    let burst = Burst::take(plan)?;
    let after = cached_and_unwritten_bytes(filled.as_ref());
    let report = Report { fill_seconds, before, after, sums: burst.found_and_expected(), burst };
    line::print(&report.sample())?;
    line::print(&report.end())?;
    plan.handshake.wait_for_close()?;
    if report.is_right() {
        return Ok(());
    }
    Err(Failure::Failed("the memory does not hold what was written to it".to_owned()))
}
