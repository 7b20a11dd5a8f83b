//! One run from end to end: set up, wait for `go`, scan, report.

use crate::arguments::Arguments;
use crate::dataset::Source;
use crate::heartbeat::Heartbeat;
use crate::report::Totals;
use crate::scan::{Pass, Work};
use crate::scan_team::with_scan_team;
use crate::tasks::Executor;
use contract::timing::timed;
use contract::{bus_error, json_lines, Failure};
use std::sync::Arc;
use std::time::Instant;

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the files cannot be read as requested, or a full pass does not have the expected sum.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    bus_error::explain("pcscan");
    let mut open_seconds = 0.0;
    let sources = timed(&mut open_seconds, || arguments.dataset.open())?;
    let expected = arguments.dataset.expected_sum(&sources, arguments.work.stride)?;
    let heart = arguments.heartbeat.create()?.map(Arc::new);
    let size_bytes = sources.iter().map(|source| source.len as u64).sum();
    let mut totals = Totals::new(size_bytes, arguments.work.discard_sum, expected);
    if !run(arguments, &sources, heart.as_ref(), &mut totals)? {
        return Ok(());
    }
    json_lines::print(&totals.end(open_seconds, heart.as_deref()))?;
    arguments.handshake.wait_for_close()?;
    if totals.checksum_ok() == Some(false) {
        return Err(Failure::Failed(
            "the bytes of the files do not add up to what their sidecars say".into(),
        ));
    }
    Ok(())
}

/// Run all passes; false if the run was cancelled.
fn run(
    arguments: &Arguments,
    sources: &[Arc<Source>],
    heart: Option<&Arc<Heartbeat>>,
    totals: &mut Totals,
) -> Result<bool, Failure> {
    let Arguments { exec, dataset, hints, fix, .. } = arguments;
    if exec.exec.is_async() {
        let executor = Executor::new(*exec, dataset.io, *hints, *fix, heart.cloned())?;
        return passes(arguments, totals, |work| executor.pass(sources, work));
    }
    with_scan_team(*exec, *hints, sources, heart.map(|heart| &**heart), |team| {
        passes(arguments, totals, |work| team.pass(work))
    })
}

/// Wait for `go`, then run passes until all are done or the time is up.
fn passes(
    arguments: &Arguments,
    totals: &mut Totals,
    pass: impl Fn(Work) -> Result<Pass, Failure>,
) -> Result<bool, Failure> {
    if !arguments.handshake.wait_for_go()? {
        return Ok(false);
    }
    let work = arguments.work.starting_at(Instant::now(), arguments.dataset.piece_bytes);
    for _ in 0..arguments.work.passes {
        let found = pass(work)?;
        json_lines::print(&totals.add(&found))?;
        if found.tallies.iter().any(|tally| tally.result.stopped) {
            break;
        }
    }
    Ok(true)
}
