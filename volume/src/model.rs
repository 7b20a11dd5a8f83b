//! The volume: the decision about each request when it arrives.

use serde_json::Value;

use crate::account::Account;
use crate::event::{effect_of, Event, Restore};
use crate::latency::Latency;
use crate::limit::{Credits, Limit};
use crate::request::{Direction, Outcome, Request};
use crate::spec::{AccountingSpec, Layer, LimitSpec, Scope, SpecError, Unit, VolumeSpec};

/// A limit and the requests that share it.
#[derive(Debug)]
struct ScopedLimit {
    layer: Layer,
    scope: Scope,
    unit: Unit,
    limit: Limit,
}

impl ScopedLimit {
    fn new(spec: &LimitSpec, dilation: f64) -> Self {
        let credits = spec.credits.as_ref().map(|credits| Credits {
            capacity: credits.capacity,
            level: credits.start,
            burst_per_second: credits.burst_per_second / dilation,
        });
        let limit = Limit::new(spec.per_second / dilation, credits);
        Self { layer: spec.layer, scope: spec.scope, unit: spec.unit, limit }
    }

    fn covers(&self, direction: Direction) -> bool {
        matches!(
            (self.scope, direction),
            (Scope::Both, _) | (Scope::Read, Direction::Read) | (Scope::Write, Direction::Write)
        )
    }

    fn cost(&self, operations: f64, bytes: u64) -> f64 {
        match self.unit {
            Unit::Operations => operations,
            Unit::Bytes => bytes as f64,
        }
    }
}

/// The requests that the provider has merged so far: the end of the last, and the length of all.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    end: u64,
    bytes: u64,
}

/// The state of a simulated volume.
#[derive(Debug)]
pub struct Volume {
    limits: Vec<ScopedLimit>,
    accounting: AccountingSpec,
    latency: Latency,
    restore: Option<Restore>,
    events: Vec<Event>,
    seed: u64,
    dilation: f64,
    arrived: u64,
    runs: [Run; 2],
    account: Account,
}

impl Volume {
    /// Return the volume of a description, with this length in bytes.
    ///
    /// # Errors
    ///
    /// Fails if a latency is not a distribution.
    pub fn new(spec: &VolumeSpec, bytes: u64) -> Result<Self, SpecError> {
        let [reads, writes] = spec.latencies()?;
        let limits = spec.limits.iter().map(|limit| ScopedLimit::new(limit, spec.dilation));
        Ok(Self {
            limits: limits.collect(),
            accounting: spec.accounting.clone(),
            latency: Latency::new(reads, writes, spec.seed),
            restore: spec.restore.as_ref().map(|restore| {
                let rate = restore.bytes_per_second / spec.dilation;
                Restore::new(bytes, restore.block_bytes, rate)
            }),
            events: spec.events.clone(),
            seed: spec.seed,
            dilation: spec.dilation,
            arrived: 0,
            runs: [Run::default(); 2],
            account: Account::default(),
        })
    }

    /// Decide about a request that arrives at a time of the volume's clock.
    pub fn arrive(&mut self, request: &Request, now_ns: u64) -> Outcome {
        let now = now_ns as f64;
        let effect = effect_of(&self.events, request, now, self.seed, self.arrived);
        self.arrived += 1;
        if effect.fails {
            self.account.add_failure();
            return Outcome::Fails { at_ns: now_ns };
        }
        let operations = self.operations(request);
        let mut start = effect.not_before_ns;
        for scoped in self.limits.iter().filter(|scoped| scoped.covers(request.direction)) {
            let cost = scoped.cost(operations, request.length);
            start = start.max(scoped.limit.earliest_start_ns(now, cost));
        }
        for scoped in self.limits.iter_mut().filter(|scoped| scoped.covers(request.direction)) {
            let cost = scoped.cost(operations, request.length);
            scoped.limit.admit(now, start, cost, effect.share);
        }
        let loaded = self.restore.as_mut().map_or(start, |restore| restore.loaded_ns(request, start));
        let latency = self.latency.draw_ns(request.direction, request.length);
        let done = loaded + latency + effect.delay_ns * self.dilation;
        self.account.add(request, operations, now, done);
        Outcome::Completes { at_ns: done.round() as u64 }
    }

    /// Add an event while the volume is served.
    pub fn add_event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Return the account at a time, in the layout of `nvme amzn stats`.
    #[must_use]
    pub fn account(&self, now_ns: u64) -> Value {
        let exceeded: Vec<_> = self
            .limits
            .iter()
            .map(|scoped| (scoped.layer, scoped.unit, scoped.limit.exceeded_ns()))
            .collect();
        self.account.to_json(now_ns as f64, &exceeded)
    }

    /// Return the number of operations that the provider counts for a request.
    fn operations(&mut self, request: &Request) -> f64 {
        let Some(io_size) = self.accounting.io_size_bytes else { return 1.0 };
        let run = &mut self.runs[usize::from(request.direction == Direction::Write)];
        let follows = self.accounting.merged && request.offset == run.end && run.bytes > 0;
        let before = if follows { run.bytes } else { 0 };
        let after = before + request.length;
        *run = Run { end: request.offset + request.length, bytes: after % io_size };
        (after.div_ceil(io_size) - before.div_ceil(io_size)) as f64
    }
}
