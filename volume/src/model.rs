//! The volume: the decision about each request when it arrives.

use serde_json::Value;

use crate::account::{Account, LimitUse, Upkeep};
use crate::event::{effect_of, paces_of, Event, EventError, MOST_EVENTS};
use crate::io_count::IoCounter;
use crate::latency::Latency;
use crate::pace::Pace;
use crate::request::{Decision, Direction, Request, NEVER_NS};
use crate::restore::Restore;
use crate::scoped_limit::{Demand, ScopedLimit};
use crate::spec::{AccountingSpec, ModelSpec, QuantilesSpec, RestoreSpec, SpecError};

/// The account of a volume at a time.
#[derive(Debug)]
pub struct Statement {
    account: Account,
    limits: Vec<LimitUse>,
    now_ns: u64,
}

impl Statement {
    /// Return it as JSON, in the layout of `nvme amzn stats` with the key `pcvolume` in addition.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.account.to_json(&self.limits, self.now_ns)
    }
}

/// The state of a simulated volume.
#[derive(Debug)]
pub struct Volume {
    limits: Vec<ScopedLimit>,
    io_counter: IoCounter,
    latency: Latency,
    restore: Option<Restore>,
    events: Vec<Event>,
    /// Of the instance's and of the volume's limits.
    paces: [Pace; 2],
    seed: u64,
    path_us: f64,
    arrived: u64,
    /// The start of the last request of each direction.
    heads_ns: [f64; 2],
    account: Account,
}

impl Volume {
    /// Return the volume of a description, with this length in bytes.
    ///
    /// # Errors
    ///
    /// Fails if a number is out of its range, or a latency is not a distribution.
    pub fn new(spec: &ModelSpec, bytes: u64) -> Result<Self, SpecError> {
        spec.check()?;
        let [reads, writes] = spec.latencies()?;
        let restore = spec.restore.as_ref();
        Ok(Self {
            limits: spec.limits.iter().map(ScopedLimit::new).collect(),
            io_counter: IoCounter::new(spec.accounting.io_size_bytes, spec.accounting.merged),
            latency: Latency::new(reads, writes, spec.seed)?,
            restore: restore.map(|it| Restore::new(bytes, it.block_bytes, it.bytes_per_second)),
            paces: paces_of(&spec.events),
            events: spec.events.clone(),
            seed: spec.seed,
            path_us: spec.path_us,
            arrived: 0,
            heads_ns: [0.0; 2],
            account: Account::default(),
        })
    }

    /// Return the description of the volume as it is now, with the credits that are left.
    #[must_use]
    pub fn describe(&self, now_ns: u64) -> ModelSpec {
        let (io_size_bytes, merged) = self.io_counter.rules();
        let latency = |direction| self.latency.of(direction).iter().map(QuantilesSpec::describe);
        let limits = self.limits.iter();
        ModelSpec {
            limits: limits.map(|limit| limit.describe(&self.paces, now_ns as f64)).collect(),
            accounting: AccountingSpec { io_size_bytes, merged },
            read_latency: latency(Direction::Read).collect(),
            write_latency: latency(Direction::Write).collect(),
            restore: self.restore.as_ref().map(|restore| {
                let (bytes_per_second, block_bytes) = restore.rules();
                RestoreSpec { bytes_per_second, block_bytes }
            }),
            events: self.events.clone(),
            seed: self.seed,
            path_us: self.path_us,
        }
    }

    /// Decide about a request that arrives at a time of the volume's clock, which must not be
    /// before that of the last one.
    pub fn arrive(&mut self, request: &Request, now_ns: u64) -> Decision {
        let now = now_ns as f64;
        let effect = effect_of(&self.events, request, now, self.seed, self.arrived);
        self.arrived += 1;
        let from_ns = self.resume_ns(now);
        let fails = effect.fails || effect.detached;
        if fails || from_ns.is_infinite() {
            self.account.arrive(request.direction, 0, now_ns);
            let at_ns = if effect.detached { now_ns } else { whole_ns(from_ns) };
            return Decision { arrived_ns: now_ns, at_ns, fails };
        }
        let operations = self.io_counter.count(request);
        self.account.arrive(request.direction, operations, now_ns);
        let Request { direction, length: bytes, .. } = *request;
        let start_ns = self.start_ns(&Demand { direction, operations, bytes, from_ns });
        let loaded_ns = match &mut self.restore {
            Some(restore) => restore.loaded_ns(request, now, start_ns),
            None => start_ns,
        };
        // What the path adds before the arrival and after the reply is part of the latency. A reply
        // that was due before its request arrived is late.
        let latency_ns =
            self.latency.draw_ns(direction, bytes) + effect.delay_ns - 1000.0 * self.path_us;
        Decision { arrived_ns: now_ns, at_ns: whole_ns(loaded_ns + latency_ns), fails }
    }

    /// Decide about a flush, a discard or zeroes: only a pause and a detachment concern them.
    #[must_use]
    pub fn decide_upkeep(&self, now_ns: u64) -> Decision {
        let everything = Request { direction: Direction::Write, offset: 0, length: 0 };
        let effect = effect_of(&self.events, &everything, now_ns as f64, self.seed, 0);
        let from_ns = self.resume_ns(now_ns as f64);
        let at_ns = if effect.detached { now_ns } else { whole_ns(from_ns) };
        Decision { arrived_ns: now_ns, at_ns, fails: effect.detached }
    }

    /// Count the reply to a request. `error` is that of the file below.
    pub fn complete(
        &mut self,
        request: &Request,
        decision: &Decision,
        now_ns: u64,
        error: Option<String>,
    ) {
        let felt_ns = now_ns + whole_ns(1000.0 * self.path_us);
        self.account.complete(request, decision, now_ns, felt_ns, error);
    }

    /// Count a flush, a discard or zeroes. `error` is that of the file below.
    pub fn complete_upkeep(
        &mut self,
        upkeep: Upkeep,
        decision: &Decision,
        now_ns: u64,
        error: Option<String>,
    ) {
        if decision.fails || error.is_some() {
            self.account.fail(error);
        } else {
            self.account.keep_up(upkeep, now_ns.saturating_sub(decision.arrived_ns));
        }
    }

    /// Add an event while the volume is served.
    ///
    /// # Errors
    ///
    /// Fails if the event is not complete, or if there are too many.
    pub fn add_event(&mut self, event: Event) -> Result<(), EventError> {
        event.check()?;
        if self.events.len() >= MOST_EVENTS {
            return Err(EventError::TooMany);
        }
        self.events.push(event);
        self.paces = paces_of(&self.events);
        Ok(())
    }

    /// Return the account at a time.
    #[must_use]
    pub fn account(&self, now_ns: u64) -> Statement {
        let limits = self.limits.iter().map(|limit| limit.usage(&self.paces, now_ns as f64));
        Statement { account: self.account.clone(), limits: limits.collect(), now_ns }
    }

    /// Return the end of the pause at a time; that time itself outside of pauses.
    fn resume_ns(&self, now_ns: f64) -> f64 {
        let [pauses, _] = &self.paces;
        pauses.real_ns(pauses.limit_ns(now_ns)).max(now_ns)
    }

    /// Return the start of a request, which is that of the limit that holds it back longest.
    fn start_ns(&mut self, demand: &Demand) -> f64 {
        let Self { limits, paces, heads_ns, .. } = self;
        let covering = limits.iter().filter(|limit| limit.covers(demand.direction));
        let start_ns =
            covering.map(|limit| limit.start_ns(paces, demand)).fold(demand.from_ns, f64::max);
        let head_ns = &mut heads_ns[usize::from(demand.direction == Direction::Write)];
        for limit in limits.iter_mut().filter(|limit| limit.covers(demand.direction)) {
            limit.admit(paces, demand, start_ns, *head_ns);
        }
        *head_ns = start_ns;
        start_ns
    }
}

/// Return whole nanoseconds; [`NEVER_NS`] for an infinite time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a time after an arrival
fn whole_ns(at_ns: f64) -> u64 {
    if at_ns.is_finite() {
        at_ns.round() as u64
    } else {
        NEVER_NS
    }
}
