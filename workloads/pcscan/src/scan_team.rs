//! Scans by threads: each scans its share of the files, one after another.

use crate::dataset::Source;
use crate::exec::ExecOptions;
use crate::heartbeat::Heartbeat;
use crate::hints::Hints;
use crate::reads;
use crate::scan::{Pass, Tally, Work};
use contract::json_lines::ThreadLine;
use contract::threads::{TeamSize, ThreadTeam, Worker};
use contract::usage::Usage;
use contract::Failure;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

/// Default of the standard library.
const STACK_BYTES: usize = 2 << 20;

type Share = (Vec<Tally>, ThreadLine);

/// Threads that wait for the next pass, and the heartbeat beside them.
#[derive(Debug)]
pub struct ScanTeam<'a> {
    team: &'a ThreadTeam<Share>,
    heart: Option<&'a Heartbeat>,
    work: &'a OnceLock<Work>,
}

/// Start the threads and call `lead` while they wait. Fails if a thread cannot be started; the
/// error of `lead`.
pub fn with_scan_team<T>(
    exec: ExecOptions,
    hints: Hints,
    sources: &[Arc<Source>],
    heart: Option<&Heartbeat>,
    lead: impl FnOnce(&ScanTeam<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let work = OnceLock::new();
    let threads = exec.threads();
    let create = |number| Ok(Scanner { number, threads, hints, sources, work: &work });
    let size = TeamSize { count: threads, stack_bytes: STACK_BYTES, first_cpu: Some(0) };
    let lead = |team: &ThreadTeam<Share>| lead(&ScanTeam { team, heart, work: &work });
    ThreadTeam::run(size, create, lead).map(|(outcome, _)| outcome)
}

impl ScanTeam<'_> {
    /// Scan every file once; the work is the same in every pass. Fails with the first that any
    /// thread met.
    pub fn pass(&self, work: Work) -> Result<Pass, Failure> {
        self.work.get_or_init(|| work);
        let shares = thread::scope(|scope| {
            if let Some(heart) = self.heart {
                heart.start()?;
                scope.spawn(|| heart.beat_here());
            }
            let shares = self.team.pass();
            if let Some(heart) = self.heart {
                heart.stop();
            }
            shares
        })?;
        let (tallies, threads): (Vec<Vec<Tally>>, Vec<ThreadLine>) = shares.into_iter().unzip();
        Ok(Pass { tallies: tallies.into_iter().flatten().collect(), threads })
    }
}

/// One thread's share: every n-th file, so that no file belongs to two threads.
struct Scanner<'a> {
    number: usize,
    threads: usize,
    hints: Hints,
    sources: &'a [Arc<Source>],
    work: &'a OnceLock<Work>,
}

impl Worker for Scanner<'_> {
    type Pass = Share;
    type End = ();

    fn pass(&mut self, _number: u64) -> Result<Share, Failure> {
        let Some(work) = self.work.get() else { return Ok(Share::default()) };
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let share = self.sources.iter().skip(self.number).step_by(self.threads);
        let tallies =
            share.map(|source| self.scan(source, work)).collect::<Result<Vec<Tally>, Failure>>()?;
        let blocks = tallies.iter().map(|tally| tally.result.pieces).sum();
        let usage = Usage::of_this_thread() - before;
        Ok((tallies, ThreadLine { seconds: started.elapsed().as_secs_f64(), blocks, usage }))
    }

    fn end(self) {}
}

impl Scanner<'_> {
    fn scan(&self, source: &Source, work: &Work) -> Result<Tally, Failure> {
        let started = Instant::now();
        let map = self.hints.give(source)?;
        let advise = started.elapsed();
        let result = match map {
            Some(map) => work.range(&map, 0..map.len()),
            None => reads::waiting(source, work)?,
        };
        Ok(Tally { started, ended: Instant::now(), advise, result })
    }
}
