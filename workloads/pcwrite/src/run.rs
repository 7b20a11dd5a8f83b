//! One run from end to end: set up, wait for `go`, write, look at the disk, read back, report.

use crate::arguments::Plan;
use crate::content::Content;
use crate::readback::Written;
use crate::report::Report;
use crate::scratch;
use crate::watch::{peak_while, unwritten_bytes};
use crate::writer::{pages, pass, Pass, Target};
use contract::{bus_error, line, Failure};
use std::fs::File;
use std::time::Instant;

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the file cannot be had, the disk fails, or what was written does not come back.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain("pcwrite");
    if pages(plan) == 0 {
        return Err(Failure::BadArguments("less than one page is nothing to write".to_owned()));
    }
    let begun = Instant::now();
    let file = scratch::make(&plan.folder, whole_pages(plan))?;
    let target = Target::new(plan.method, &file)?;
    let setup_seconds = begun.elapsed().as_secs_f64();
    if !plan.handshake.wait_for_go()? {
        return Ok(());
    }
    let report = write_and_prove(plan, &file, target, setup_seconds)?;
    line::print(&report.end())?;
    plan.handshake.wait_for_close()?;
    if report.is_right() {
        return Ok(());
    }
    Err(Failure::Failed("what was written did not come back as it was".to_owned()))
}

fn whole_pages(plan: &Plan) -> u64 {
    pages(plan) * contract::page::page_bytes() as u64
}

fn write_and_prove(
    plan: &Plan,
    file: &File,
    mut target: Target<'_>,
    setup_seconds: f64,
) -> Result<Report, Failure> {
    let mut content = Content::new(plan.seed);
    let (passes, unwritten_peak) = peak_while(file, || passes(plan, &mut target, &mut content));
    let passes = passes?;
    let unwritten_after = unwritten_bytes(file);
    let counts: Vec<u64> = passes.iter().map(|pass| pass.pages).collect();
    let written = Written::by(plan, &counts);
    let on_disk_pages = written.on_disk(file, &mut content);
    drop(target); // a mapped page would not be dropped from the cache
    let (right_pages, sum) = written.read_back(file, &mut content)?;
    Ok(Report {
        plan: plan.clone(),
        setup_seconds,
        passes,
        unwritten_peak,
        unwritten_after,
        distinct_pages: written.count(),
        on_disk_pages,
        right_pages,
        sum,
        expected_sum: written.sum(&content),
    })
}

fn passes(plan: &Plan, target: &mut Target<'_>, content: &mut Content) -> Result<Vec<Pass>, Failure> {
    let deadline = plan.max_duration.map(|limit| Instant::now() + limit);
    let mut passes = Vec::new();
    for number in 0..plan.passes {
        let done = pass(plan, target, content, number, deadline)?;
        line::print(&Report::sample(plan, number, &done))?;
        passes.push(done);
        if done.stopped || deadline.is_some_and(|at| Instant::now() >= at) {
            break;
        }
    }
    Ok(passes)
}
