//! One process from end to end: set up, wait for `go`, load, use, report.

use crate::arguments::{Plan, When};
use crate::calculation::Pace;
use crate::gate::Gate;
use crate::memory::{self, Memory};
use crate::method::Method;
use crate::probe;
use crate::report::{After, Report, Setup};
use crate::shift::{joined, timed, Handle, Load, Shift, Use};
use contract::smaps::Rollup;
use contract::{bus_error, expectation, line, page_cache, Failure};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the file cannot be had, the kernel refuses the method, or the bytes do not add up.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain("pcprefault");
    let mut setup = Setup::default();
    let (file, length_bytes) = setup.opened(|| memory::open(&plan.file))?;
    let sidecar = plan.sidecar.as_deref();
    let expected = sidecar.map(|path| expectation::from_sidecar(path, length_bytes as u64)).transpose()?;
    probe::require(plan.method, length_bytes)?;
    let memory = OnceLock::new();
    if !is_made_in_the_measured_part(plan) {
        let mapped = setup.mapped(|| Memory::make(Method::MapOnly, &file, length_bytes))?;
        let _ = memory.set(mapped); // it was empty
    }
    let shift = Shift {
        plan,
        file: &file,
        length_bytes,
        memory: &memory,
        iterations: iterations(plan, length_bytes),
        loading: Gate::new(loaders(plan)),
        computing: Gate::new(plan.compute_threads),
    };
    let Some(report) = work(&shift)? else {
        return Ok(());
    };
    let ok = report.checksum_ok(expected);
    line::print(&report.sample())?;
    line::print(&report.end(setup, expected))?;
    plan.handshake.wait_for_close()?;
    if ok == Some(false) {
        let shown = plan.file.display();
        return Err(Failure::Failed(format!("the bytes of {shown} do not add up to what was expected")));
    }
    Ok(())
}

fn is_made_in_the_measured_part(plan: &Plan) -> bool {
    plan.method.makes_memory() && plan.prefault_threads > 0
}

fn loaders(plan: &Plan) -> usize {
    if plan.method.makes_memory() {
        0
    } else {
        plan.prefault_threads
    }
}

/// Each thread's share of the computing.
fn iterations(plan: &Plan, length_bytes: usize) -> u64 {
    let time = plan.compute.for_bytes(length_bytes);
    if time == Duration::ZERO {
        return 0;
    }
    Pace::measured().iterations(time, plan.compute_threads)
}

/// Starts all threads, and lets them go once whoever measures says so. None when nobody wants the work any more.
fn work(shift: &Shift<'_>) -> Result<Option<Report>, Failure> {
    thread::scope(|scope| {
        let loaders = shift.start_loading(scope);
        let computers = shift.start_computing(scope);
        shift.loading.until_all_are_here();
        shift.computing.until_all_are_here();
        let outcome = lead(shift, loaders, computers);
        shift.loading.dismiss();
        shift.computing.dismiss();
        outcome
    })
}

fn lead(
    shift: &Shift<'_>,
    loaders: Vec<Handle<'_, Load>>,
    computers: Vec<Handle<'_, Use>>,
) -> Result<Option<Report>, Failure> {
    if !shift.plan.handshake.wait_for_go()? {
        return Ok(None);
    }
    let anonymous = anonymous_bytes();
    let started = Instant::now();
    let loads = match shift.plan.when {
        When::Before => load(shift, loaders)?,
        When::Beside => {
            shift.loading.open();
            shift.computing.open();
            joined(loaders)?
        }
    };
    let after = (shift.plan.when == When::Before).then(|| After {
        resident_bytes: page_cache::resident_bytes(shift.file, shift.length_bytes),
        anonymous_bytes: anonymous.zip(anonymous_bytes()).map(|(before, after)| after.saturating_sub(before)),
    });
    shift.computing.open();
    let uses = joined(computers)?;
    Ok(Some(Report { length_bytes: shift.length_bytes, started, loads, after, uses }))
}

/// Loads the file ahead and waits until that is done.
fn load(shift: &Shift<'_>, loaders: Vec<Handle<'_, Load>>) -> Result<Vec<Load>, Failure> {
    if is_made_in_the_measured_part(shift.plan) {
        let made = timed(|| {
            let memory = Memory::make(shift.plan.method, shift.file, shift.length_bytes)?;
            let _ = shift.memory.set(memory); // it was empty
            Ok(())
        })?;
        return Ok(vec![made]);
    }
    shift.loading.open();
    joined(loaders)
}

fn anonymous_bytes() -> Option<u64> {
    Rollup::of(None)?.bytes("Anonymous")
}
