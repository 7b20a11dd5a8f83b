//! One run from end to end: set up, wait for `go`, read, report.

use crate::arguments::{Expected, Plan};
use crate::blocks::split;
use crate::bus_error;
use crate::expectation;
use crate::report::Totals;
use crate::source::Source;
use crate::team::Team;
use contract::{line, Failure};

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the source cannot be had, or a full pass did not add up to what was expected.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain();
    let (source, setup) = Source::open(&plan.file, plan.source, plan.advice, plan.size_bytes)?;
    let bytes = source.bytes();
    let expected = expected_sum(plan, bytes.len() as u64)?;
    let mut totals = Totals::new(bytes.len() as u64, plan.threads, plan.sum.sums_bytes(), expected);
    let parts = split(bytes.len(), plan.block_bytes, page_bytes(), plan.threads);
    let mut wanted = true;
    let latency = Team::new(plan, bytes, &parts).work(|team| {
        wanted = plan.handshake.wait_for_go()?;
        if wanted {
            passes(plan, team, &mut totals)?;
        }
        Ok(())
    })?;
    if !wanted {
        return Ok(());
    }
    line::print(&totals.end(setup, &latency))?;
    plan.handshake.wait_for_close()?;
    judge(plan, &totals)
}

/// Runs passes until all are done or the time is up.
fn passes(plan: &Plan, team: &Team<'_>, totals: &mut Totals) -> Result<(), Failure> {
    for _ in 0..plan.passes {
        let tallies = team.pass();
        line::print(&totals.add(&tallies))?;
        if tallies.iter().any(|tally| tally.stopped) {
            break;
        }
    }
    Ok(())
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

/// The size of this kernel's pages: 4 KiB on x86-64, up to 64 KiB elsewhere.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let found = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(found).unwrap_or(4096)
}
