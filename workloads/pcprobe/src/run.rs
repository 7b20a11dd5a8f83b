//! One probe from end to end: announce, ask, make the file, measure phase by phase, tell.

use crate::arguments::Plan;
use crate::consent::{announcement, ask};
use crate::device::Storage;
use crate::engine::{Engine, Work};
use crate::phase::{phases, Phase, LARGE_BYTES};
use crate::report::{asked, Outcome, PROBE_VERSION};
use crate::scratch::{self, Scratch};
use crate::summary::summary;
use crate::{cgroup, interruption, machine, proof, report};
use contract::Failure;
use serde_json::{json, Value};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Does what the plan says and writes the JSON. False when it was interrupted; what was measured is written all the same.
///
/// # Errors
/// When nobody agrees, there is no room, or the JSON cannot be written.
pub fn measure(plan: &Plan) -> Result<bool, Failure> {
    let free_bytes = scratch::free_bytes(&plan.folder)?;
    scratch::require_room(free_bytes, plan.size_bytes)?;
    let engine = Engine::choose(plan.engine)?;
    eprintln!("{}", announcement(&plan.folder, plan.size_bytes, plan.time, free_bytes, &engine.shown()));
    ask(plan.yes)?;
    interruption::listen();
    let mut probe = Probe::new(plan, engine)?;
    for (number, phase) in phases(plan.time).into_iter().enumerate() {
        probe.add(phase, number as u64);
    }
    let complete = !interruption::asked();
    write(plan, &probe.report(complete))?;
    Ok(complete)
}

struct Probe<'a> {
    plan: &'a Plan,
    engine: Engine,
    scratch: Scratch,
    storage: Storage,
    begun: SystemTime,
    /// How much of the file has been written, and so can be read.
    written_bytes: u64,
    outcomes: Vec<Outcome>,
}

impl<'a> Probe<'a> {
    fn new(plan: &'a Plan, engine: Engine) -> Result<Self, Failure> {
        Ok(Self {
            plan,
            engine,
            scratch: scratch::make(&plan.folder, plan.size_bytes)?,
            storage: Storage::beneath(&plan.folder),
            begun: SystemTime::now(),
            written_bytes: 0,
            outcomes: Vec::new(),
        })
    }

    fn add(&mut self, phase: Phase, seed: u64) {
        let outcome = self.outcome(phase, seed);
        eprintln!("{}", shown(&outcome));
        self.outcomes.push(outcome);
    }

    fn outcome(&mut self, phase: Phase, seed: u64) -> Outcome {
        if interruption::asked() {
            return Outcome::missing(phase, "interrupted before it began".to_owned());
        }
        let area_bytes = if self.written_bytes == 0 { self.plan.size_bytes } else { self.written_bytes };
        let before = self.cold();
        let work = Work::new(&phase, &self.scratch.file, area_bytes, self.scratch.direct, seed);
        let done = self.engine.drive(&work);
        let figures = match done {
            Err(cause) => return Outcome::missing(phase, cause.to_string()),
            Ok(figures) => figures,
        };
        let moved = proof::moved_bytes(&phase, before, proof::storage());
        let asked_bytes = figures.ios * phase.block_bytes as u64;
        if self.written_bytes == 0 {
            self.written_bytes = filled_bytes(asked_bytes, self.plan.size_bytes);
        }
        let doubt = proof::doubt(asked_bytes, moved, self.scratch.direct, &self.storage.filesystem);
        let cut = interruption::asked().then(|| "interrupted".to_owned());
        Outcome::measured(phase, figures, moved, cut.or(doubt))
    }

    /// The kernel's counters, after the file has left the page cache where it is in it.
    fn cold(&self) -> Option<proof::Storage> {
        if !self.scratch.direct {
            scratch::drop_cached(&self.scratch.file);
        }
        proof::storage()
    }

    fn report(&self, complete: bool) -> Value {
        let begun = self.begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        json!({
            "type": "probe",
            "probe_version": PROBE_VERSION,
            "program_version": env!("CARGO_PKG_VERSION"),
            "begun_unix_seconds": begun,
            "complete": complete,
            "host_name": if self.plan.name_host { machine::host_name() } else { None },
            "asked": asked(self.plan),
            "engine": self.engine.to_json(),
            "file": {"written_bytes": self.written_bytes, "direct": self.scratch.direct, "reason": self.scratch.reason},
            "machine": machine::machine(),
            "cgroup": cgroup::limits(self.storage.disk.as_deref()),
            "storage": self.storage.to_json(),
            "summary": summary(&self.outcomes),
            "phases": report::phases(&self.outcomes),
        })
    }
}

/// The front of the file that the first phase has written, in whole large blocks; one at least, so that there is an area.
fn filled_bytes(written_bytes: u64, size_bytes: u64) -> u64 {
    let large = LARGE_BYTES as u64;
    (written_bytes.min(size_bytes) / large * large).max(large)
}

fn shown(outcome: &Outcome) -> String {
    let phase = &outcome.phase;
    let name = format!("{:<24} depth {:>2}", phase.name.replace('_', " "), phase.depth);
    match (outcome.rate(), outcome.reason()) {
        (Some(rate), _) if phase.random => format!("{name}  {rate:>9.0} I/Os a second"),
        (Some(rate), _) => format!("{name}  {:>9.1} MB/s", rate * phase.block_bytes as f64 / 1e6),
        (None, reason) => format!("{name}  no figure: {}", reason.unwrap_or_default()),
    }
}

fn write(plan: &Plan, report: &Value) -> Result<(), Failure> {
    let text = format!("{report:#}\n");
    let Some(path) = &plan.out else {
        let done = std::io::stdout().write_all(text.as_bytes());
        return done.map_err(|cause| Failure::of("cannot write to stdout", cause));
    };
    std::fs::write(path, text).map_err(|cause| Failure::of(format!("cannot write {}", path.display()), cause))
}
