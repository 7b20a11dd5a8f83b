//! A limit with the requests that share it, in the volume's time.
//!
//! Each limit is a queue of its own: it serves requests in the order of their arrival, as if there
//! were no other limit. A request starts when all its limits have served those before it. So
//! requests of several sizes reach each limit, and no limit is used up by waiting for another.

use crate::account::LimitUse;
use crate::limit::{Credits, Limit};
use crate::pace::Pace;
use crate::request::Direction;
use crate::spec::{CreditsSpec, Layer, LimitSpec, Scope, Unit};

/// Times that differ by less are equal.
const ROUNDING_NS: f64 = 0.5;

/// A limit and the requests that share it.
#[derive(Debug)]
pub struct ScopedLimit {
    layer: Layer,
    scope: Scope,
    unit: Unit,
    limit: Limit,
    exceeded_ns: f64,
    exceeded_until_ns: f64,
}

/// A request that limits decide about: what it costs, and when it may start at the earliest.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Its direction.
    pub direction: Direction,
    /// Its operations by the provider's rules.
    pub operations: u64,
    /// Its bytes.
    pub bytes: u64,
    /// When it may start at the earliest, in nanoseconds of the volume's clock.
    pub from_ns: f64,
}

impl ScopedLimit {
    /// Return the limit of a description.
    #[must_use]
    pub fn new(spec: &LimitSpec) -> Self {
        let credits = spec.credits.as_ref().map(|credits| Credits {
            capacity: credits.capacity,
            level: credits.start,
            burst_per_second: credits.burst_per_second,
        });
        let limit = Limit::new(spec.per_second, credits);
        let LimitSpec { layer, scope, unit, .. } = *spec;
        Self { layer, scope, unit, limit, exceeded_ns: 0.0, exceeded_until_ns: 0.0 }
    }

    /// Return whether requests of this direction share the limit.
    #[must_use]
    pub fn covers(&self, direction: Direction) -> bool {
        matches!(
            (self.scope, direction),
            (Scope::Both, _) | (Scope::Read, Direction::Read) | (Scope::Write, Direction::Write)
        )
    }

    /// Return when the limit lets a request start.
    #[must_use]
    pub fn start_ns(&self, paces: &[Pace; 2], demand: &Demand) -> f64 {
        let pace = self.pace(paces);
        if self.limit.free_ns() <= pace.limit_ns(demand.from_ns) {
            return demand.from_ns;
        }
        pace.real_ns(self.limit.free_ns()).max(demand.from_ns)
    }

    /// Admit a request that starts at `start_ns`, when all its limits allow it. `head_ns` is the
    /// start of the request before it, before which it was not the next to start.
    pub fn admit(&mut self, paces: &[Pace; 2], demand: &Demand, start_ns: f64, head_ns: f64) {
        let binds = self.start_ns(paces, demand) >= start_ns - ROUNDING_NS;
        let waited_from_ns = demand.from_ns.max(head_ns).max(self.exceeded_until_ns);
        if binds && start_ns > waited_from_ns + ROUNDING_NS {
            self.exceeded_ns += start_ns - waited_from_ns;
            self.exceeded_until_ns = start_ns;
        }
        let cost = match self.unit {
            Unit::Operations => demand.operations as f64,
            Unit::Bytes => demand.bytes as f64,
        };
        self.limit.admit(self.pace(paces).limit_ns(demand.from_ns), cost);
    }

    fn pace<'a>(&self, paces: &'a [Pace; 2]) -> &'a Pace {
        &paces[usize::from(self.layer == Layer::Volume)]
    }

    /// Return the description of the limit, with its credits at a time.
    #[must_use]
    pub fn describe(&self, paces: &[Pace; 2], now_ns: f64) -> LimitSpec {
        let credits = self.limit.credits(self.pace(paces).limit_ns(now_ns));
        let Self { layer, scope, unit, .. } = *self;
        let credits = credits.map(|credits| CreditsSpec {
            burst_per_second: credits.burst_per_second,
            capacity: credits.capacity,
            start: credits.level,
        });
        LimitSpec { layer, scope, unit, per_second: self.limit.per_second(), credits }
    }

    /// Return the use of the limit until a time.
    #[must_use]
    pub fn usage(&self, paces: &[Pace; 2], now_ns: f64) -> LimitUse {
        let pace = self.pace(paces);
        let changes = self.limit.changes().iter();
        // Requests that wait now have counted their whole wait already.
        let ahead_ns = (self.exceeded_until_ns - now_ns).max(0.0);
        LimitUse {
            layer: self.layer,
            scope: self.scope,
            unit: self.unit,
            per_second: self.limit.per_second(),
            used: self.limit.used(),
            exceeded_ns: (self.exceeded_ns - ahead_ns).max(0.0),
            level: self.limit.level(pace.limit_ns(now_ns)),
            changes: changes.map(|&(at_ns, rate)| (pace.real_ns(at_ns), rate)).collect(),
        }
    }
}
