//! One probe from end to end: announce, ask for confirmation, create the file, measure phase by
//! phase, report.

use crate::arguments::Arguments;
use crate::confirmation::{announcement, ask};
use crate::device::Storage;
use crate::engine::Engine;
use crate::machine::{self, Machine};
use crate::outcome::Outcome;
use crate::phase::{phases, Phase, LARGE_BYTES};
use crate::report::{Asked, FileLine, Report, PROBE_VERSION};
use crate::scratch::{self, Scratch};
use crate::storage_counters::StorageCounters;
use crate::summary::summary;
use crate::work::PhaseWork;
use crate::{cgroup, interruption, storage_counters};
use contract::failure::OrFailure;
use contract::Failure;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Do what the arguments say and write the report. False if it was interrupted; finished phases are
/// reported even then.
///
/// # Errors
/// Without confirmation or space, or if the report cannot be written.
pub fn measure(arguments: &Arguments) -> Result<bool, Failure> {
    let Arguments { folder, size_bytes, .. } = arguments;
    let free_bytes = scratch::free_bytes(folder)?;
    scratch::require_room(free_bytes, *size_bytes)?;
    let engine = Engine::choose(arguments.engine)?;
    let description = engine.description();
    eprintln!("{}", announcement(folder, *size_bytes, arguments.time(), free_bytes, &description));
    ask(arguments.yes)?;
    interruption::listen();
    let mut probe = Probe::new(arguments, engine)?;
    for (number, phase) in phases(arguments.time()).into_iter().enumerate() {
        probe.add(phase, number as u64);
    }
    let complete = !interruption::is_requested();
    write(arguments, &probe.report(complete))?;
    Ok(complete)
}

struct Probe<'a> {
    arguments: &'a Arguments,
    engine: Engine,
    scratch: Scratch,
    storage: Storage,
    begun: SystemTime,
    /// Bytes of the file that have been written, and so can be read.
    written_bytes: u64,
    outcomes: Vec<Outcome>,
}

impl<'a> Probe<'a> {
    fn new(arguments: &'a Arguments, engine: Engine) -> Result<Self, Failure> {
        Ok(Self {
            arguments,
            engine,
            scratch: scratch::make(&arguments.folder, arguments.size_bytes)?,
            storage: Storage::beneath(&arguments.folder),
            begun: SystemTime::now(),
            written_bytes: 0,
            outcomes: Vec::new(),
        })
    }

    fn add(&mut self, phase: Phase, seed: u64) {
        let outcome = self.outcome(phase, seed);
        eprintln!("{}", progress(&outcome));
        self.outcomes.push(outcome);
    }

    fn outcome(&mut self, phase: Phase, seed: u64) -> Outcome {
        if interruption::is_requested() {
            return Outcome::missing(phase, "interrupted before it began".to_owned());
        }
        let area_bytes =
            if self.written_bytes == 0 { self.arguments.size_bytes } else { self.written_bytes };
        let before = self.cold();
        let work =
            PhaseWork::new(&phase, &self.scratch.file, area_bytes, self.scratch.direct, seed);
        let figures = match self.engine.drive(&work) {
            Err(cause) => return Outcome::missing(phase, cause.to_string()),
            Ok(figures) => figures,
        };
        let moved = storage_counters::moved_bytes(&phase, before, storage_counters::read());
        let asked_bytes = figures.ios * phase.block_bytes as u64;
        if self.written_bytes == 0 {
            self.written_bytes = filled_bytes(asked_bytes, self.arguments.size_bytes);
        }
        let doubt = storage_counters::doubt(
            asked_bytes,
            moved,
            self.scratch.direct,
            &self.storage.filesystem,
        );
        let cut = interruption::is_requested().then(|| "interrupted".to_owned());
        Outcome::measured(phase, figures, moved, cut.or(doubt))
    }

    /// Read the kernel's counters, after dropping the file from the page cache if it may be in it.
    fn cold(&self) -> Option<StorageCounters> {
        if !self.scratch.direct {
            scratch::drop_cached(&self.scratch.file);
        }
        storage_counters::read()
    }

    fn report(&self, complete: bool) -> Report<'_> {
        let arguments = self.arguments;
        let folder = || arguments.folder.display().to_string();
        let reason = self.scratch.reason.as_deref();
        Report {
            probe_version: PROBE_VERSION,
            program_version: env!("CARGO_PKG_VERSION"),
            begun_unix_seconds: self
                .begun
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            complete,
            host_name: arguments.name_host.then(machine::host_name),
            asked: Asked {
                size_bytes: arguments.size_bytes,
                seconds: arguments.time().as_secs(),
                folder: arguments.name_host.then(folder),
            },
            engine: self.engine.figures(),
            file: FileLine {
                written_bytes: self.written_bytes,
                direct: self.scratch.direct,
                reason,
            },
            machine: Machine::here(),
            cgroup: cgroup::limits(self.storage.disk.as_deref()),
            storage: &self.storage,
            summary: summary(&self.outcomes),
            phases: self.outcomes.iter().map(Outcome::line).collect(),
        }
    }
}

/// Return the length of the part that the first phase has written, in whole large blocks, at least
/// one.
fn filled_bytes(written_bytes: u64, size_bytes: u64) -> u64 {
    let large = LARGE_BYTES as u64;
    (written_bytes.min(size_bytes) / large * large).max(large)
}

fn progress(outcome: &Outcome) -> String {
    let phase = &outcome.phase;
    let name = format!("{:<24} depth {:>2}", phase.name.replace('_', " "), phase.depth);
    match (outcome.rate(), outcome.reason()) {
        (Some(rate), _) if phase.random => format!("{name}  {rate:>9.0} I/Os a second"),
        (Some(rate), _) => format!("{name}  {:>9.1} MB/s", rate * phase.block_bytes as f64 / 1e6),
        (None, reason) => format!("{name}  no figure: {}", reason.unwrap_or_default()),
    }
}

fn write(arguments: &Arguments, report: &Report<'_>) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).or_failed("cannot write the report")? + "\n";
    let Some(path) = &arguments.out else {
        return std::io::stdout().write_all(text.as_bytes()).or_failed("cannot write to stdout");
    };
    std::fs::write(path, text).or_failed(format!("cannot write {}", path.display()))
}
