//! One run from end to end: set up, wait for `go`, write, examine the disk, read back, report.

use crate::arguments::Arguments;
use crate::content::Content;
use crate::readback::Written;
use crate::report::{Report, Sample};
use crate::scratch;
use crate::watch::{peak_while, unwritten_bytes};
use crate::writer::{pass, PassResult, Target, WritePlan};
use contract::page_cache::page_bytes;
use contract::{bus_error, json_lines, Failure};
use std::fs::File;
use std::time::Instant;

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the file cannot be made, the disk fails, or the content read back is wrong.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    bus_error::explain("pcwrite");
    let plan = WritePlan::new(arguments.write.clone(), arguments.amount.bytes()?);
    if plan.pages == 0 {
        return Err(Failure::BadArguments("less than one page is nothing to write".to_owned()));
    }
    let begun = Instant::now();
    let file = scratch::make(&arguments.folder, plan.pages * page_bytes() as u64)?;
    let target = Target::new(&plan.options, &file)?;
    let setup_seconds = begun.elapsed().as_secs_f64();
    if !arguments.handshake.wait_for_go()? {
        return Ok(());
    }
    let report = write_and_prove(&plan, &file, target, setup_seconds)?;
    json_lines::print(&report.end())?;
    arguments.handshake.wait_for_close()?;
    if report.is_right() {
        return Ok(());
    }
    Err(Failure::Failed("what was written did not come back as it was".to_owned()))
}

fn write_and_prove(
    plan: &WritePlan,
    file: &File,
    mut target: Target<'_>,
    setup_seconds: f64,
) -> Result<Report, Failure> {
    let mut content = Content::new(plan.options.seed);
    let (passes, unwritten_peak) = peak_while(file, || passes(plan, &mut target, &mut content));
    let passes = passes?;
    let checking = Instant::now();
    let unwritten_after = unwritten_bytes(file);
    let counts: Vec<u64> = passes.iter().map(|pass| pass.pages).collect();
    let written = Written::by(plan, &counts);
    let on_disk_pages = written.on_disk(file, &mut content);
    let is_mapped = matches!(target, Target::Mapped(_));
    drop(target); // a mapped page would not be dropped from the cache
    let (right_pages, sum) = written.read_back(file, &mut content)?;
    Ok(Report {
        pages: plan.pages,
        is_mapped,
        setup_seconds,
        passes,
        unwritten_peak,
        unwritten_after,
        distinct_pages: written.count(),
        on_disk_pages,
        right_pages,
        check: checking.elapsed(),
        sum,
        expected_sum: written.sum(&content),
    })
}

fn passes(
    plan: &WritePlan,
    target: &mut Target<'_>,
    content: &mut Content,
) -> Result<Vec<PassResult>, Failure> {
    let deadline = plan.options.max_duration.map(|limit| Instant::now() + limit);
    let mut passes = Vec::new();
    for number in 0..plan.options.passes {
        let done = pass(plan, target, content, number, deadline)?;
        json_lines::print(&Sample::new(plan, number, &done))?;
        passes.push(done);
        if done.stopped || deadline.is_some_and(|at| Instant::now() >= at) {
            break;
        }
    }
    Ok(passes)
}
