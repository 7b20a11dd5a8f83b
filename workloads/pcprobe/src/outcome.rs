//! The outcome of one phase.

use crate::burst::{self, Burst, BurstFigures};
use crate::phase::Phase;
use crate::series::{rounded, rounded_rates, Rate};
use crate::tally::Figures;
use contract::latency::LatencyFigures;
use serde::Serialize;

/// One phase in the report.
#[derive(Debug, Serialize)]
pub struct PhaseLine<'a> {
    name: &'static str,
    operation: &'static str,
    order: &'static str,
    block_bytes: usize,
    depth: usize,
    asked_seconds: f64,
    seconds: f64,
    ios: u64,
    storage_bytes: Option<u64>,
    ios_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    latency_us: Option<LatencyFigures>,
    burst: Option<BurstFigures>,
    rates: Vec<Rate>,
    reason: Option<&'a str>,
}

/// The outcome of one phase.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub phase: Phase,
    figures: Figures,
    burst: Option<Burst>,
    storage_bytes: Option<u64>,
    reason: Option<String>,
}

impl Outcome {
    /// Create the outcome of a phase that ran; with a reason its figures do not count.
    pub fn measured(
        phase: Phase,
        figures: Figures,
        storage_bytes: Option<u64>,
        reason: Option<String>,
    ) -> Self {
        let short = figures
            .ios_per_second
            .is_none()
            .then(|| "cut short: too little time for a rate".to_owned());
        let reason = reason.or(short);
        let burst = if reason.is_none() { burst::find(&figures.rates) } else { None };
        Self { phase, figures, burst, storage_bytes, reason }
    }

    /// Create the outcome of a phase that did not run, or failed.
    pub fn missing(phase: Phase, reason: String) -> Self {
        Self {
            phase,
            figures: Figures::default(),
            burst: None,
            storage_bytes: None,
            reason: Some(reason),
        }
    }

    /// Return the I/Os a second over the whole phase; None if they do not count.
    pub fn rate(&self) -> Option<f64> {
        self.figures.ios_per_second.filter(|_| self.reason.is_none())
    }

    /// Return the I/Os a second after burst credits, if any, had run out.
    pub fn plateau(&self) -> Option<f64> {
        self.rate().map(|rate| self.burst.map_or(rate, |burst| burst.base_ios_per_second))
    }

    /// Return its percentiles; None if they do not count.
    pub fn latency_us(&self) -> Option<LatencyFigures> {
        self.figures.latency_us.filter(|_| self.rate().is_some())
    }

    /// Return the reason why its figures do not count.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Return the phase as the report has it.
    pub fn line(&self) -> PhaseLine<'_> {
        let (phase, rate) = (&self.phase, self.rate());
        PhaseLine {
            name: phase.name,
            operation: if phase.writes { "write" } else { "read" },
            order: if phase.random { "random" } else { "sequential" },
            block_bytes: phase.block_bytes,
            depth: phase.depth,
            asked_seconds: rounded(phase.time.as_secs_f64()),
            seconds: rounded(self.figures.seconds),
            ios: self.figures.ios,
            storage_bytes: self.storage_bytes,
            ios_per_second: rate.map(rounded),
            bytes_per_second: rate.map(|rate| (rate * phase.block_bytes as f64).round()),
            latency_us: self.latency_us(),
            burst: self.burst.map(|burst| burst.figures(phase.block_bytes)),
            rates: rounded_rates(&self.figures.rates),
            reason: self.reason(),
        }
    }
}
