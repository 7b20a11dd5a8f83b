//! One run from end to end: set up, wait for `go`, load, look up, report.

use crate::arguments::Arguments;
use crate::load::{Load, Loaded};
use crate::loaders::{with_loaders, Loaders};
use crate::lookup::{self, LookupResults, Watch};
use crate::questions::{Questions, Shape};
use crate::report::{Run, Setup};
use crate::segment::Segment;
use contract::index::BUCKET_BYTES;
use contract::json_lines::{self, ThreadLine};
use contract::latency::{Histogram, Sampler};
use contract::mixing_hash::mix;
use contract::permutation::Permutation;
use contract::timing::timed;
use contract::usage::Usage;
use contract::{bus_error, cpus, Failure};
use std::time::Instant;

/// The index with its start-up set.
struct Index<'a> {
    arguments: &'a Arguments,
    segments: &'a [Segment],
    questions: &'a Questions,
    lookups: u64,
}

/// Do what the arguments say and print the lines.
///
/// # Errors
/// If the index cannot be opened, or an answer differs from the one known beforehand.
pub fn measure(arguments: &Arguments) -> Result<(), Failure> {
    bus_error::explain("pcindex");
    arguments.load.load.probe()?;
    let mut setup = Setup::default();
    let segments = timed(&mut setup.open_seconds, || arguments.index.open())?;
    let shapes: Vec<Shape> = segments
        .iter()
        .map(|segment| Shape { seed: segment.sidecar.seed, buckets: segment.buckets() })
        .collect();
    let questions = timed(&mut setup.keys_seconds, || Questions::new(&shapes))?;
    let lookups = arguments.lookup.count(questions.count())?;
    let index = Index { arguments, segments: &segments, questions: &questions, lookups };
    let run = with_loaders(&arguments.load, &segments, |loaders| index.start(loaders))?;
    let Some(run) = run else { return Ok(()) };
    json_lines::print(&run.sample())?;
    json_lines::print(&run.end(setup))?;
    arguments.handshake.wait_for_close()?;
    run.require_right()
}

impl Index<'_> {
    /// Wait for `go` and do the measured part; None if the run was cancelled.
    fn start(&self, loaders: &Loaders<'_>) -> Result<Option<Run>, Failure> {
        if let Some(cpu) = cpus::chosen(&cpus::allowed(), 0) {
            cpus::pin_this_thread(cpu);
        }
        if !self.arguments.handshake.wait_for_go()? {
            return Ok(None);
        }
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let mut run = self.empty_run();
        let deadline =
            self.arguments.lookup.max_duration.and_then(|limit| started.checked_add(limit));
        self.load(loaders, deadline, &mut run)?;
        run.load_seconds = started.elapsed().as_secs_f64();
        if !run.loaded.stopped {
            self.look_up(deadline, &mut run)?;
        }
        run.seconds = started.elapsed().as_secs_f64();
        let blocks = run.load_results.asked + run.results.asked;
        let usage = Usage::of_this_thread() - before;
        run.threads.insert(0, ThreadLine { seconds: run.seconds, blocks, usage });
        Ok(Some(run))
    }

    fn load(
        &self,
        loaders: &Loaders<'_>,
        deadline: Option<Instant>,
        run: &mut Run,
    ) -> Result<(), Failure> {
        if self.arguments.load.load == Load::Lazy {
            let (results, _) = self.ask(1, self.questions.count(), deadline);
            let bytes = results.asked * BUCKET_BYTES as u64;
            run.loaded = Loaded { bytes, wrong_files: 0, stopped: results.stopped };
            run.load_results = results;
        } else if self.arguments.load.load.is_by_file() {
            (run.loaded, run.threads) = loaders.load(deadline)?;
        }
        Ok(())
    }

    fn look_up(&self, deadline: Option<Instant>, run: &mut Run) -> Result<(), Failure> {
        self.arguments.index.advise_again(self.segments)?;
        let started = Instant::now();
        (run.results, run.latency) = self.ask(2, self.lookups, deadline);
        run.lookup_seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Look up in an order of this round: repeating an order would make the first round a rehearsal
    /// of the second.
    fn ask(&self, round: u64, count: u64, deadline: Option<Instant>) -> (LookupResults, Histogram) {
        let order =
            Permutation::new(self.questions.count(), mix(self.arguments.lookup.seed ^ mix(round)));
        let sampler =
            Sampler::new(self.arguments.lookup.time_every, self.arguments.lookup.seed ^ round);
        let mut watch = Watch { deadline, sampler, latency: Histogram::new() };
        let results = lookup::ask(self.segments, self.questions, &order, count, &mut watch);
        (results, watch.latency)
    }

    fn empty_run(&self) -> Run {
        Run {
            load: self.arguments.load.load,
            size_bytes: self.questions.count() * BUCKET_BYTES as u64,
            files: self.segments.len(),
            expects_sidecars: self.arguments.load.expect_sidecars,
            lookups: self.lookups,
            loaded: Loaded::default(),
            load_results: LookupResults::default(),
            results: LookupResults::default(),
            latency: Histogram::new(),
            load_seconds: 0.0,
            lookup_seconds: 0.0,
            seconds: 0.0,
            threads: Vec::new(),
        }
    }
}
