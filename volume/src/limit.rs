//! Rate limits in continuous time: first come, first served, without slices.
//!
//! A request below the limit starts when it arrives. Above it, requests queue, and each starts when
//! the requests before it have used their share of the rate. With credits, requests are served at
//! the burst rate while credits last, and at the base rate afterwards. A request that outlasts the
//! credits is served partly at either rate, so the drain takes exactly
//! `credits / (burst - base)` seconds, however large the requests are.
//!
//! All times are those of the limit's own clock ([`crate::pace`]), in nanoseconds.

const NS_PER_SECOND: f64 = 1e9;
const MOST_CHANGES: usize = 1000;

/// The credits of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Credits {
    /// The most that the bucket holds, in units of the limit.
    pub capacity: f64,
    /// Its level at the beginning.
    pub level: f64,
    /// Units per second that are admitted while credits last; above the base rate.
    pub burst_per_second: f64,
}

/// A time from which on the admitted rate is another, in nanoseconds and units per second.
pub type RateChange = (f64, f64);

/// A limit in units (I/Os or bytes) per second.
#[derive(Clone, Debug)]
pub struct Limit {
    per_second: f64,
    credits: Option<Credits>,
    /// The time at which all admitted work is done, and for which `credits.level` holds.
    free_ns: f64,
    /// The time at which the credits ran out, for levels before `free_ns`.
    drained_ns: f64,
    used: f64,
    bursts: bool,
    changes: Vec<RateChange>,
}

impl Limit {
    /// Return a limit of `per_second` units, with a bucket of credits above it if given.
    #[must_use]
    pub fn new(per_second: f64, credits: Option<Credits>) -> Self {
        let mut limit = Self {
            per_second,
            credits,
            free_ns: 0.0,
            drained_ns: 0.0,
            used: 0.0,
            bursts: false,
            changes: Vec::new(),
        };
        if let Some(credits) = credits {
            limit.bursts = credits.level >= limit.enough(&credits);
            let rate = if limit.bursts { credits.burst_per_second } else { per_second };
            limit.changes.push((0.0, rate));
        }
        limit
    }

    /// Return the time at which all admitted requests are served, when the next one may start.
    #[must_use]
    pub fn free_ns(&self) -> f64 {
        self.free_ns
    }

    /// Serve a request of this cost as soon as possible from `from_ns` on.
    pub fn admit(&mut self, from_ns: f64, cost: f64) {
        let begin_ns = from_ns.max(self.free_ns);
        self.used += cost;
        let seconds = match self.credits {
            Some(credits) => self.burst_seconds(credits, begin_ns, cost),
            None => cost / self.per_second,
        };
        self.free_ns = begin_ns + seconds * NS_PER_SECOND;
    }

    /// Take the credits of a request, and return how long it is served.
    fn burst_seconds(&mut self, mut credits: Credits, begin_ns: f64, cost: f64) -> f64 {
        let drain = credits.burst_per_second - self.per_second;
        credits.level = self.refilled(&credits, begin_ns);
        if !self.bursts && credits.level >= self.enough(&credits) {
            self.change(begin_ns, credits.burst_per_second);
        }
        let lasts = credits.level / drain;
        let by_credits = lasts * credits.burst_per_second;
        let seconds = if cost < by_credits {
            let seconds = cost / credits.burst_per_second;
            credits.level = (credits.level - seconds * drain).max(0.0);
            seconds
        } else {
            if credits.level > 0.0 || self.bursts {
                self.drained_ns = begin_ns + lasts * NS_PER_SECOND;
            }
            if self.bursts {
                self.change(self.drained_ns, self.per_second);
            }
            credits.level = 0.0;
            lasts + (cost - by_credits) / self.per_second
        };
        self.credits = Some(credits);
        seconds
    }

    fn change(&mut self, at_ns: f64, rate: f64) {
        self.bursts = !self.bursts;
        if self.changes.len() < MOST_CHANGES {
            self.changes.push((at_ns, rate));
        }
    }

    /// Return the level from which on the credits count as having come back: those of one second.
    /// A limit that is used at about its base rate does not change its rate with every request.
    fn enough(&self, credits: &Credits) -> f64 {
        (credits.burst_per_second - self.per_second).min(credits.capacity)
    }

    /// Return the level at a time at which all admitted work is done.
    fn refilled(&self, credits: &Credits, time_ns: f64) -> f64 {
        let gained = (time_ns - self.free_ns).max(0.0) / NS_PER_SECOND * self.per_second;
        (credits.level + gained).min(credits.capacity)
    }

    /// Return the level of the credit bucket; None without one.
    #[must_use]
    pub fn level(&self, now_ns: f64) -> Option<f64> {
        let credits = self.credits?;
        if now_ns >= self.free_ns {
            return Some(self.refilled(&credits, now_ns));
        }
        // The limit is busy until `free_ns`, so the level falls from now until then.
        let lowest_ns = if credits.level > 0.0 { self.free_ns } else { self.drained_ns };
        let drain = credits.burst_per_second - self.per_second;
        let above = (lowest_ns - now_ns).max(0.0) / NS_PER_SECOND * drain;
        Some((credits.level + above).min(credits.capacity))
    }

    /// Return the rate; with credits, the base rate.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Return the credits, with their level at a time.
    #[must_use]
    pub fn credits(&self, now_ns: f64) -> Option<Credits> {
        let level = self.level(now_ns)?;
        self.credits.map(|credits| Credits { level, ..credits })
    }

    /// Return the units that requests have used.
    #[must_use]
    pub fn used(&self) -> f64 {
        self.used
    }

    /// Return the changes between burst and base rate, the first at time zero; none without
    /// credits, and at most 1000.
    #[must_use]
    pub fn changes(&self) -> &[RateChange] {
        &self.changes
    }
}
