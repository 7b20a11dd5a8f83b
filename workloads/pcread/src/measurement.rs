//! One run from end to end: set up, wait for `go`, read, report.

use crate::arguments::Arguments;
use crate::block_sequence::Partitioning;
use crate::coverage;
use crate::pass::Tally;
use crate::proc::{self, MappedBytes};
use crate::report::{Closing, Totals};
use crate::residency::{Residency, ResidencySamples};
use crate::source::{self, Source};
use crate::team::Reading;
use contract::page_cache::page_bytes;
use contract::sidecar::require_expected_sum;
use contract::threads::ThreadTeam;
use contract::{bus_error, json_lines, Failure};

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the source is not available, or a full pass does not have the expected sum.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    bus_error::explain("pcread");
    let Arguments { source: access, reader, sequence, pass, handshake, .. } = arguments;
    let mut residency =
        ResidencySamples { open: examine(arguments)?, ..ResidencySamples::default() };
    let (source, setup) = Source::open(access)?;
    let partitioning = &Partitioning::new(sequence, source.size_bytes, page_bytes());
    let mut totals = totals(arguments, source.size_bytes as u64)?;
    let (mut is_wanted, mut shootdowns) = (true, None);
    let reading = Reading { access, reader, sequence, pass, source: &source, partitioning };
    let results = reading.run(|team| {
        warm(pass.warm_passes, team, &mut totals)?;
        residency.ready = examine(arguments)?;
        is_wanted =
            handshake.wait_for_go_having_evicted(evicted_by_advice(arguments, &residency))?;
        let before = proc::tlb_shootdowns();
        if is_wanted {
            passes(pass.passes, team, &mut totals)?;
        }
        residency.end = examine(arguments)?;
        shootdowns = proc::tlb_shootdowns().zip(before).map(|(now, before)| now - before);
        Ok(())
    })?;
    if !is_wanted {
        return Ok(());
    }
    let distinct_bytes = distinct(arguments, partitioning, &totals);
    let mapped = MappedBytes::of_this_process();
    let closing = Closing { setup, results, distinct_bytes, shootdowns, mapped, residency };
    json_lines::print(&totals.end(&closing))?;
    handshake.wait_for_close()?;
    require_expected_sum(&access.file, totals.checksum_ok())
}

fn examine(arguments: &Arguments) -> Result<Residency, Failure> {
    let size_bytes = source::size_of(&arguments.source)?;
    Ok(Residency::of(&arguments.source.file, size_bytes as u64))
}

/// Blocks that are only touched, or not each visited exactly once, have no expected sum.
fn totals(arguments: &Arguments, size_bytes: u64) -> Result<Totals, Failure> {
    let Arguments { sequence, pass, expect, .. } = arguments;
    let has_sum = pass.sum.sums_bytes() && coverage::is_once_each(sequence);
    let expected = expect.sum(size_bytes)?.filter(|_| has_sum);
    Ok(Totals::new(size_bytes, pass, sequence.threads, expected))
}

/// Return the bytes that the set-up dropped from the page cache. Zero unless it was advised to:
/// another process may drop pages too.
fn evicted_by_advice(arguments: &Arguments, residency: &ResidencySamples) -> u64 {
    if arguments.source.drops_pages() {
        residency.evicted_bytes().unwrap_or(0)
    } else {
        0
    }
}

/// Run the passes before `ready`, which are not measured. Their sums are checked.
fn warm(count: u64, team: &ThreadTeam<Tally>, totals: &mut Totals) -> Result<(), Failure> {
    (0..count).try_for_each(|_| team.pass().map(|tallies| totals.check(&tallies)))
}

/// Run passes until all are done or the time is up.
fn passes(count: u64, team: &ThreadTeam<Tally>, totals: &mut Totals) -> Result<(), Failure> {
    for _ in 0..count {
        let tallies = team.pass()?;
        json_lines::print(&totals.add(&tallies))?;
        if tallies.iter().any(|tally| tally.stopped) {
            break;
        }
    }
    Ok(())
}

/// Return the bytes of the first pass, each counted once: by construction, or by walking through
/// its order again unless it is long.
fn distinct(arguments: &Arguments, partitioning: &Partitioning, totals: &Totals) -> Option<u64> {
    if coverage::is_once_each(&arguments.sequence) {
        return Some(totals.first_bytes());
    }
    coverage::distinct_of(&arguments.sequence, partitioning, totals.first_blocks())
}
