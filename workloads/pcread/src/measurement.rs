//! One run from end to end: set up, wait for `go`, read, report.

use crate::advice::{Advice, FileAdvice};
use crate::arguments::{Expected, Plan};
use crate::coverage;
use crate::proc;
use crate::report::{Closing, Totals};
use crate::residency::{Moments, Residency};
use crate::route::Map;
use crate::source::{self, Source};
use crate::team::Team;
use contract::page::page_bytes;
use contract::{bus_error, expectation, line, Failure};

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the source cannot be had, or a full pass did not add up to what was expected.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain("pcread");
    let mut moments = Moments { open: look(plan)?, ..Moments::default() };
    let (source, setup) = Source::open(plan)?;
    let map = Map::new(plan, source.size_bytes, page_bytes());
    let expected = expected_sum(plan, source.size_bytes as u64)?;
    let mut totals = Totals::new(plan, source.size_bytes as u64, expected);
    let (mut wanted, mut shootdowns) = (true, None);
    let gathered = Team::new(plan, &source, &map).work(|team| {
        warm(plan, team, &mut totals)?;
        moments.ready = look(plan)?;
        wanted = plan.handshake.wait_for_go_having_evicted(evicted_by_advice(plan, &moments))?;
        let before = proc::tlb_shootdowns();
        if wanted {
            passes(plan, team, &mut totals)?;
        }
        moments.end = look(plan)?;
        shootdowns = proc::tlb_shootdowns().zip(before).map(|(now, before)| now - before);
        Ok(())
    })?;
    if !wanted {
        return Ok(());
    }
    let distinct_bytes = distinct(plan, &map, &totals);
    let smaps = proc::smaps_rollup();
    line::print(&totals.end(&Closing { setup, gathered, distinct_bytes, shootdowns, smaps, moments }))?;
    plan.handshake.wait_for_close()?;
    judge(plan, &totals)
}

fn look(plan: &Plan) -> Result<Residency, Failure> {
    let size_bytes = source::size_of(&plan.file, plan.size_bytes)?;
    Ok(Residency::of(&plan.file, size_bytes as u64))
}

/// What the set-up dropped from the page cache; nothing unless it was asked to, since another process may drop pages.
fn evicted_by_advice(plan: &Plan, moments: &Moments) -> u64 {
    let drops = plan.fadvise == FileAdvice::DontNeed || plan.advice == Advice::PageOut;
    if drops {
        moments.evicted_bytes().unwrap_or(0)
    } else {
        0
    }
}

/// Runs the passes that nobody measures, before `ready`. What they add up to is checked all the same.
fn warm(plan: &Plan, team: &Team<'_>, totals: &mut Totals) -> Result<(), Failure> {
    (0..plan.warm_passes).try_for_each(|_| team.pass().map(|tallies| totals.check(&tallies)))
}

/// Runs passes until all are done or the time is up.
fn passes(plan: &Plan, team: &Team<'_>, totals: &mut Totals) -> Result<(), Failure> {
    for _ in 0..plan.passes {
        let tallies = team.pass()?;
        line::print(&totals.add(&tallies))?;
        if tallies.iter().any(|tally| tally.stopped) {
            break;
        }
    }
    Ok(())
}

/// Bytes of the first pass, each counted once: by construction, or by walking through its order again.
fn distinct(plan: &Plan, map: &Map, totals: &Totals) -> u64 {
    if coverage::is_once_each(plan) {
        return totals.first_bytes();
    }
    coverage::distinct_of(plan, map, totals.first_blocks())
}

fn expected_sum(plan: &Plan, size_bytes: u64) -> Result<Option<u64>, Failure> {
    match &plan.expected {
        Expected::Nothing => Ok(None),
        Expected::Sum(sum) => Ok(Some(*sum)),
        Expected::Sidecar(path) => expectation::from_sidecar(path, size_bytes).map(Some),
    }
}

fn judge(plan: &Plan, totals: &Totals) -> Result<(), Failure> {
    if totals.checksum_ok() == Some(false) {
        let shown = plan.file.display();
        return Err(Failure::Failed(format!("the bytes of {shown} do not add up to what was expected")));
    }
    Ok(())
}
