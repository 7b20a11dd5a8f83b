//! One process from end to end: set up, wait for `go`, load, use, report.

use crate::arguments::Arguments;
use crate::memory::Memory;
use crate::method::{Method, When};
use crate::probe;
use crate::report::{MemoryAfter, Report, Setup};
use crate::workers::{measured, Load, Use, Workers};
use contract::listed_sizes::ListedSizes;
use contract::threads::ThreadTeam;
use contract::timing::timed;
use contract::{bus_error, data_files, json_lines, page_cache, sidecar, Failure, Handshake};
use std::sync::OnceLock;
use std::time::Instant;

/// Do what the arguments say in this process and print the lines. Fails if the file cannot be
/// opened, the kernel rejects the method, or the bytes do not have the expected sum.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    bus_error::explain("pcprefault");
    let Arguments { load, compute, using, handshake, .. } = arguments;
    let mut setup = Setup::default();
    let (file, length_bytes) =
        timed(&mut setup.open_seconds, || data_files::open(&arguments.file, false))?;
    let sidecar = arguments.sidecar.as_deref();
    let expected =
        sidecar.map(|path| sidecar::expected_sum(path, length_bytes as u64)).transpose()?;
    probe::require(load.method, length_bytes)?;
    let memory = OnceLock::new();
    if !load.is_one_call() {
        let make = || Memory::make(Method::MapOnly, &file, length_bytes);
        let _ = memory.set(timed(&mut setup.map_seconds, make)?); // it was empty
    }
    let iterations = compute.iterations(length_bytes, using.compute_threads);
    let workers = Workers { load, using, file: &file, length_bytes, memory, iterations };
    let Some(report) = work(&workers, *handshake)? else {
        return Ok(());
    };
    json_lines::print(&report.sample())?;
    json_lines::print(&report.end(setup, expected))?;
    handshake.wait_for_close()?;
    sidecar::require_expected_sum(&arguments.file, report.checksum_ok(expected))
}

/// Start all threads and let them work after `go`. None if the run was cancelled.
fn work(workers: &Workers<'_>, handshake: Handshake) -> Result<Option<Report>, Failure> {
    let load_and_use = |loading: &ThreadTeam<Load>| {
        let create = |thread| Ok(workers.user(thread));
        ThreadTeam::run(workers.users(), create, |using| lead(workers, handshake, loading, using))
    };
    let create = |thread| Ok(workers.loader(thread));
    ThreadTeam::run(workers.loaders(), create, load_and_use).map(|((report, _), _)| report)
}

fn lead(
    workers: &Workers<'_>,
    handshake: Handshake,
    loading: &ThreadTeam<Load>,
    using: &ThreadTeam<Use>,
) -> Result<Option<Report>, Failure> {
    if !handshake.wait_for_go()? {
        return Ok(None);
    }
    let anonymous = anonymous_bytes();
    let started = Instant::now();
    let length_bytes = workers.length_bytes;
    if workers.load.when == When::Beside {
        loading.start_pass();
        using.start_pass();
        let (loads, uses) = (loading.finish_pass()?, using.finish_pass()?);
        return Ok(Some(Report { length_bytes, started, loads, after: None, uses }));
    }
    let loads = load(workers, loading)?;
    let after = Some(MemoryAfter {
        resident_bytes: page_cache::resident_bytes(workers.file, length_bytes),
        anonymous_bytes: anonymous
            .zip(anonymous_bytes())
            .map(|(before, after)| after.saturating_sub(before)),
    });
    Ok(Some(Report { length_bytes, started, loads, after, uses: using.pass()? }))
}

/// Load the file and wait until that is done.
fn load(workers: &Workers<'_>, loading: &ThreadTeam<Load>) -> Result<Vec<Load>, Failure> {
    if !workers.load.is_one_call() {
        return loading.pass();
    }
    let make = || {
        let memory = Memory::make(workers.load.method, workers.file, workers.length_bytes)?;
        let _ = workers.memory.set(memory); // it was empty
        Ok(())
    };
    Ok(vec![measured(make)?])
}

fn anonymous_bytes() -> Option<u64> {
    ListedSizes::of(None)?.bytes("Anonymous")
}
