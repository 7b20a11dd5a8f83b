//! One run from end to end: set up, wait for `go`, scan, report.

use crate::arguments::Plan;
use crate::crew::{Crew, Pass};
use crate::dataset::{expected_sum, Source};
use crate::heartbeat::Heartbeat;
use crate::report::Totals;
use crate::scan::Work;
use crate::tasks::Executor;
use contract::{bus_error, line, Failure};
use std::sync::Arc;
use std::time::Instant;

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the files cannot be had in that way, or a full pass did not add up to what was expected.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain("pcscan");
    let started = Instant::now();
    let sources = plan
        .files
        .iter()
        .map(|path| Source::open(path, plan).map(Arc::new))
        .collect::<Result<Vec<_>, Failure>>()?;
    let open_seconds = started.elapsed().as_secs_f64();
    let expected = expected_sum(plan, &sources)?.filter(|_| !plan.discard_sum);
    let heart = plan.heartbeat.map(|period| Heartbeat::new(period).map(Arc::new)).transpose()?;
    let size_bytes = sources.iter().map(|source| source.len as u64).sum();
    let mut totals = Totals::new(size_bytes, plan.discard_sum, expected);
    if !run(plan, &sources, heart.as_ref(), &mut totals)? {
        return Ok(());
    }
    line::print(&totals.end(open_seconds, heart.as_deref()))?;
    plan.handshake.wait_for_close()?;
    judge(&totals)
}

/// False when nobody wanted the work any more.
fn run(
    plan: &Plan,
    sources: &[Arc<Source>],
    heart: Option<&Arc<Heartbeat>>,
    totals: &mut Totals,
) -> Result<bool, Failure> {
    if plan.exec.is_async() {
        let executor = Executor::new(plan, heart.cloned())?;
        return passes(plan, totals, |work| executor.pass(sources, work));
    }
    Crew::new(plan, sources, heart.cloned()).work(|crew| passes(plan, totals, |work| crew.pass(work)))
}

/// Waits for `go`, then runs passes until all are done or the time is up.
fn passes(
    plan: &Plan,
    totals: &mut Totals,
    pass: impl Fn(Work) -> Result<Pass, Failure>,
) -> Result<bool, Failure> {
    if !plan.handshake.wait_for_go()? {
        return Ok(false);
    }
    let work = plan.work(Instant::now());
    for _ in 0..plan.passes {
        let found = pass(work)?;
        line::print(&totals.add(&found))?;
        if found.tallies.iter().any(|tally| tally.seen.stopped) {
            break;
        }
    }
    Ok(true)
}

fn judge(totals: &Totals) -> Result<(), Failure> {
    if totals.checksum_ok() == Some(false) {
        return Err(Failure::Failed(
            "the bytes of the files do not add up to what their sidecars say".into(),
        ));
    }
    Ok(())
}
