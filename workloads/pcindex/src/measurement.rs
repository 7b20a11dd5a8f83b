//! One run from end to end: set up, wait for `go`, load, look up, report.

use crate::arguments::Plan;
use crate::load::{Load, Loaded};
use crate::loaders::{Loaders, Share};
use crate::lookup::{self, Answers, Watch};
use crate::questions::{Questions, Shape};
use crate::report::{Run, Setup};
use crate::segment::Segment;
use contract::index::BUCKET_BYTES;
use contract::latency::{Histogram, Sampler};
use contract::mix::mix;
use contract::permutation::Permutation;
use contract::usage::Usage;
use contract::{bus_error, cpus, line, Failure};
use std::time::Instant;

/// The index with its start-up set.
struct Index<'a> {
    plan: &'a Plan,
    segments: &'a [Segment],
    questions: &'a Questions,
    lookups: u64,
}

/// Does what the plan says and prints its lines.
///
/// # Errors
/// When the index cannot be had, or an answer was not the one known beforehand.
pub fn measure(plan: &Plan) -> Result<(), Failure> {
    bus_error::explain("pcindex");
    plan.load.probe()?;
    let mut setup = Setup::default();
    let segments = timed(&mut setup.open_seconds, || open(plan))?;
    let shapes: Vec<Shape> = segments
        .iter()
        .map(|segment| Shape { seed: segment.sidecar.seed, buckets: segment.buckets() })
        .collect();
    let questions = timed(&mut setup.keys_seconds, || Questions::new(&shapes))?;
    let lookups = lookups(plan, questions.count())?;
    let index = Index { plan, segments: &segments, questions: &questions, lookups };
    let loaders = Loaders::new(plan, &segments);
    let run = loaders.attend(|loaders| index.start(loaders))?;
    let Some(run) = run else { return Ok(()) };
    line::print(&run.sample())?;
    line::print(&run.end(&setup))?;
    plan.handshake.wait_for_close()?;
    run.judge()
}

fn open(plan: &Plan) -> Result<Vec<Segment>, Failure> {
    plan.files
        .iter()
        .map(|path| {
            let segment = Segment::open(path)?;
            segment.advise(plan.advice)?;
            Ok(segment)
        })
        .collect()
}

fn lookups(plan: &Plan, buckets: u64) -> Result<u64, Failure> {
    match plan.lookups {
        Some(count) if count > buckets => Err(Failure::BadArguments(format!(
            "--lookups {count} is more than the start-up set has: one key for each of {buckets} buckets"
        ))),
        chosen => Ok(chosen.unwrap_or(buckets)),
    }
}

impl Index<'_> {
    /// Waits for `go` and does the measured part; `None` when nobody wants it any more.
    fn start(&self, loaders: &Loaders<'_>) -> Result<Option<Run>, Failure> {
        if let Some(cpu) = cpus::chosen(&cpus::allowed(), 0) {
            cpus::pin_this_thread(cpu);
        }
        if !self.plan.handshake.wait_for_go()? {
            return Ok(None);
        }
        let (before, started) = (Usage::of_this_thread(), Instant::now());
        let mut run = self.empty_run();
        let deadline = self.plan.max_duration.and_then(|limit| started.checked_add(limit));
        self.load(loaders, deadline, &mut run)?;
        run.load_seconds = started.elapsed().as_secs_f64();
        if !run.loaded.stopped {
            self.look_up(deadline, &mut run)?;
        }
        run.seconds = started.elapsed().as_secs_f64();
        let blocks = run.load_answers.asked + run.answers.asked;
        let usage = Usage::of_this_thread() - before;
        run.threads.insert(0, Share { seconds: run.seconds, blocks, usage });
        Ok(Some(run))
    }

    fn load(&self, loaders: &Loaders<'_>, deadline: Option<Instant>, run: &mut Run) -> Result<(), Failure> {
        if self.plan.load == Load::Lazy {
            let (answers, _) = self.ask(1, self.questions.count(), deadline);
            let bytes = answers.asked * BUCKET_BYTES as u64;
            run.loaded = Loaded { bytes, wrong_files: 0, stopped: answers.stopped };
            run.load_answers = answers;
        } else if self.plan.load.is_by_file() {
            (run.loaded, run.threads) = loaders.load(deadline)?;
        }
        Ok(())
    }

    fn look_up(&self, deadline: Option<Instant>, run: &mut Run) -> Result<(), Failure> {
        if let Some(advice) = self.plan.then_advice {
            self.segments.iter().try_for_each(|segment| segment.advise(advice))?;
        }
        let started = Instant::now();
        (run.answers, run.latency) = self.ask(2, self.lookups, deadline);
        run.lookup_seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Each round draws an order of its own: repeating one would make the first a rehearsal of the second.
    fn ask(&self, round: u64, count: u64, deadline: Option<Instant>) -> (Answers, Histogram) {
        let order = Permutation::new(self.questions.count(), mix(self.plan.seed ^ mix(round)));
        let sampler = Sampler::new(self.plan.time_every, self.plan.seed ^ round);
        let mut watch = Watch { deadline, sampler, latency: Histogram::new() };
        let answers = lookup::ask(self.segments, self.questions, &order, count, &mut watch);
        (answers, watch.latency)
    }

    fn empty_run(&self) -> Run {
        Run {
            load: self.plan.load,
            size_bytes: self.questions.count() * BUCKET_BYTES as u64,
            files: self.segments.len(),
            expects_sidecars: self.plan.expect_sidecars,
            lookups: self.lookups,
            loaded: Loaded::default(),
            load_answers: Answers::default(),
            answers: Answers::default(),
            latency: Histogram::new(),
            load_seconds: 0.0,
            lookup_seconds: 0.0,
            seconds: 0.0,
            threads: Vec::new(),
        }
    }
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    let outcome = work();
    *seconds = start.elapsed().as_secs_f64();
    outcome
}
