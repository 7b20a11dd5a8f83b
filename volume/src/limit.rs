//! Rate limits in continuous time: first come, first served, without slices.
//!
//! A request below the limit starts when it arrives. Above it, requests queue, and each starts when
//! the requests before it have used their share of the rate. With credits, requests start at the
//! burst rate while credits last, and at the base rate afterwards.

const NS_PER_SECOND: f64 = 1e9;

/// The level of a credit bucket when the volume begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credits {
    /// The most that the bucket holds, in units of the limit.
    pub capacity: f64,
    /// Its level at time zero.
    pub level: f64,
    /// Units per second that are admitted while credits last.
    pub burst_per_second: f64,
}

/// A limit in units (I/Os or bytes) per second.
#[derive(Clone, Debug)]
pub struct Limit {
    per_second: f64,
    credits: Option<Credits>,
    /// The earliest start of the next request by rate alone.
    next_start_ns: f64,
    /// The time at which `credits.level` was true.
    level_at_ns: f64,
    exceeded_until_ns: f64,
    exceeded_ns: f64,
}

impl Limit {
    /// Return a limit of `per_second` units, with a bucket of credits above it if given.
    #[must_use]
    pub fn new(per_second: f64, credits: Option<Credits>) -> Self {
        Self {
            per_second,
            credits,
            next_start_ns: 0.0,
            level_at_ns: 0.0,
            exceeded_until_ns: 0.0,
            exceeded_ns: 0.0,
        }
    }

    /// Return the earliest start of a request of this cost that arrives now.
    #[must_use]
    pub fn earliest_start_ns(&self, now_ns: f64, cost: f64) -> f64 {
        let by_rate = now_ns.max(self.next_start_ns);
        let Some(credits) = self.credits else { return by_rate };
        let missing = cost - self.level_at(by_rate);
        if missing <= 0.0 || cost > credits.capacity {
            by_rate
        } else {
            by_rate + missing / self.per_second * NS_PER_SECOND
        }
    }

    /// Account for a request of this cost that arrived at `now_ns` and starts at `start_ns`.
    ///
    /// `share` is the part of the rate that the volume delivers at that time, 1 unless degraded.
    pub fn admit(&mut self, now_ns: f64, start_ns: f64, cost: f64, share: f64) {
        let own_start_ns = self.earliest_start_ns(now_ns, cost);
        self.exceeded_ns += (own_start_ns - now_ns.max(self.exceeded_until_ns)).max(0.0);
        self.exceeded_until_ns = self.exceeded_until_ns.max(own_start_ns);
        let rate = self.credits.map_or(self.per_second, |credits| credits.burst_per_second);
        let level = self.level_at(start_ns) - cost;
        if let Some(credits) = &mut self.credits {
            credits.level = level.max(0.0);
            self.level_at_ns = start_ns;
        }
        self.next_start_ns =
            self.next_start_ns.max(start_ns) + cost / (rate * share) * NS_PER_SECOND;
    }

    /// Return the time in which at least one request waited for this limit.
    #[must_use]
    pub fn exceeded_ns(&self) -> f64 {
        self.exceeded_ns
    }

    /// Return the level of the credit bucket; None without one.
    #[must_use]
    pub fn level(&self, now_ns: f64) -> Option<f64> {
        self.credits.map(|_| self.level_at(now_ns))
    }

    fn level_at(&self, time_ns: f64) -> f64 {
        let Some(credits) = self.credits else { return 0.0 };
        let refilled = (time_ns - self.level_at_ns).max(0.0) / NS_PER_SECOND * self.per_second;
        (credits.level + refilled).min(credits.capacity)
    }
}
