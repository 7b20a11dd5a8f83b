//! The JSON: everything that was measured, under which circumstances, and why what is missing is missing.

use crate::arguments::Plan;
use crate::burst::{self, Burst};
use crate::phase::Phase;
use crate::series::{self, rounded};
use crate::tally::Figures;
use serde_json::{json, Value};

/// The version of this format; `docs/FORMAT.md` describes it.
pub const PROBE_VERSION: u32 = 1;

/// What became of one phase.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was asked.
    pub phase: Phase,
    figures: Figures,
    burst: Option<Burst>,
    storage_bytes: Option<u64>,
    reason: Option<String>,
}

impl Outcome {
    /// A phase that ran; with a reason its figures do not count.
    #[must_use]
    pub fn measured(
        phase: Phase,
        figures: Figures,
        storage_bytes: Option<u64>,
        reason: Option<String>,
    ) -> Self {
        let short =
            figures.ios_per_second.is_none().then(|| "cut short: too little time for a rate".to_owned());
        let reason = reason.or(short);
        let burst = if reason.is_none() { burst::find(&figures.rates) } else { None };
        Self { phase, figures, burst, storage_bytes, reason }
    }

    /// A phase that did not run, or failed.
    #[must_use]
    pub fn missing(phase: Phase, reason: String) -> Self {
        Self { phase, figures: Figures::default(), burst: None, storage_bytes: None, reason: Some(reason) }
    }

    /// I/Os a second over the whole phase.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.figures.ios_per_second.filter(|_| self.reason.is_none())
    }

    /// I/Os a second once credits, if there were any, had run out.
    #[must_use]
    pub fn plateau(&self) -> Option<f64> {
        self.rate().map(|rate| self.burst.map_or(rate, |burst| burst.base_ios_per_second))
    }

    /// Its percentiles.
    #[must_use]
    pub fn latency_us(&self) -> Value {
        if self.rate().is_some() {
            self.figures.latency_us.clone()
        } else {
            Value::Null
        }
    }

    /// Why its figures do not count.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    fn to_json(&self) -> Value {
        let (phase, rate) = (&self.phase, self.rate());
        json!({
            "name": phase.name,
            "operation": if phase.writes { "write" } else { "read" },
            "order": if phase.random { "random" } else { "sequential" },
            "block_bytes": phase.block_bytes,
            "depth": phase.depth,
            "asked_seconds": rounded(phase.time.as_secs_f64()),
            "seconds": rounded(self.figures.seconds),
            "ios": self.figures.ios,
            "storage_bytes": self.storage_bytes,
            "ios_per_second": rate.map(rounded),
            "bytes_per_second": rate.map(|rate| (rate * phase.block_bytes as f64).round()),
            "latency_us": self.latency_us(),
            "burst": self.burst.map(|burst| burst.to_json(phase.block_bytes)),
            "rates": series::to_json(&self.figures.rates),
            "reason": self.reason,
        })
    }
}

/// All phases as they stand in the JSON.
#[must_use]
pub fn phases(outcomes: &[Outcome]) -> Value {
    outcomes.iter().map(Outcome::to_json).collect()
}

/// What was asked for. The folder is named only with the host.
#[must_use]
pub fn asked(plan: &Plan) -> Value {
    json!({
        "size_bytes": plan.size_bytes,
        "seconds": plan.time.as_secs(),
        "folder": plan.name_host.then(|| plan.folder.display().to_string()),
    })
}
