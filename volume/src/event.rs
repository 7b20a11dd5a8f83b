//! Events in the life of a volume: restores, degradations, delays, pauses, errors and its end.

use serde::{Deserialize, Serialize};

use crate::latency::uniform;
use crate::limit::Limit;
use crate::request::Request;

/// A period of the volume's clock.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// Its begin, in seconds.
    pub from_seconds: f64,
    /// Its end, in seconds; without it, the event lasts.
    #[serde(default = "forever")]
    pub until_seconds: f64,
}

fn forever() -> f64 {
    f64::INFINITY
}

impl Period {
    fn contains(&self, now_ns: f64) -> bool {
        (self.from_seconds..self.until_seconds).contains(&(now_ns / 1e9))
    }
}

/// An event, which applies to requests that arrive in its period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// The volume delivers a share of its rates.
    Degrade {
        /// When.
        period: Period,
        /// The share, above 0 and at most 1.
        share: f64,
    },
    /// A share of the requests takes longer.
    Delay {
        /// When.
        period: Period,
        /// The share of requests, 0 to 1.
        share: f64,
        /// The additional latency in microseconds.
        microseconds: f64,
    },
    /// No request starts.
    Pause {
        /// When.
        period: Period,
    },
    /// Requests fail with EIO.
    Fail {
        /// When.
        period: Period,
        /// The share of requests that fail, 0 to 1.
        share: f64,
        /// The first byte of the range in which they fail.
        #[serde(default)]
        first_byte: u64,
        /// The byte after the range; without it, the range ends with the volume.
        #[serde(default = "last_byte")]
        end_byte: u64,
    },
    /// The volume is detached: every request fails from then on.
    Detach {
        /// When, in seconds.
        at_seconds: f64,
    },
}

impl Event {
    /// Return the same event this much later.
    #[must_use]
    pub fn later_by(mut self, seconds: f64) -> Self {
        match &mut self {
            Self::Degrade { period, .. }
            | Self::Delay { period, .. }
            | Self::Pause { period }
            | Self::Fail { period, .. } => {
                period.from_seconds += seconds;
                period.until_seconds += seconds;
            }
            Self::Detach { at_seconds } => *at_seconds += seconds,
        }
        self
    }
}

fn last_byte() -> u64 {
    u64::MAX
}

/// The effects of all events on one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The share of the rates that the volume delivers.
    pub share: f64,
    /// The additional latency.
    pub delay_ns: f64,
    /// The time before which the request does not start.
    pub not_before_ns: f64,
    /// Whether it fails.
    pub fails: bool,
}

/// Return the effects on the `number`-th request.
#[must_use]
pub fn effect_of(
    events: &[Event],
    request: &Request,
    now_ns: f64,
    seed: u64,
    number: u64,
) -> Effect {
    let mut effect = Effect { share: 1.0, delay_ns: 0.0, not_before_ns: now_ns, fails: false };
    for (index, event) in (0u64..).zip(events) {
        let is_chosen = |share: f64| uniform(seed ^ (index + 1) << 48, number) < share;
        match *event {
            Event::Degrade { period, share } if period.contains(now_ns) => effect.share *= share,
            Event::Delay { period, share, microseconds }
                if period.contains(now_ns) && is_chosen(share) =>
            {
                effect.delay_ns += 1000.0 * microseconds;
            }
            Event::Pause { period } if period.contains(now_ns) => {
                effect.not_before_ns = effect.not_before_ns.max(1e9 * period.until_seconds);
            }
            Event::Fail { period, share, first_byte, end_byte }
                if period.contains(now_ns)
                    && request.offset < end_byte
                    && first_byte < request.offset + request.length
                    && is_chosen(share) =>
            {
                effect.fails = true;
            }
            Event::Detach { at_seconds } if now_ns >= 1e9 * at_seconds => effect.fails = true,
            _ => {}
        }
    }
    effect
}

/// A volume that was created from a snapshot: the first touch of a block loads it.
#[derive(Debug)]
pub struct Restore {
    block_bytes: u64,
    loading: Limit,
    is_loaded: Vec<u64>,
}

impl Restore {
    /// Return the state of a volume of which nothing is loaded.
    #[must_use]
    pub fn new(volume_bytes: u64, block_bytes: u64, bytes_per_second: f64) -> Self {
        let blocks = volume_bytes.div_ceil(block_bytes);
        let words = usize::try_from(blocks.div_ceil(64)).expect("a volume fits in memory by bits");
        Self { block_bytes, loading: Limit::new(bytes_per_second, None), is_loaded: vec![0; words] }
    }

    /// Return the time at which all blocks of a request that may start now are loaded.
    pub fn loaded_ns(&mut self, request: &Request, start_ns: f64) -> f64 {
        let mut ready_ns = start_ns;
        let last = request.offset + request.length.max(1) - 1;
        for block in request.offset / self.block_bytes..=last / self.block_bytes {
            let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
            if self.is_loaded[word] & bit == 0 {
                self.is_loaded[word] |= bit;
                let cost = self.block_bytes as f64;
                let begin_ns = self.loading.earliest_start_ns(start_ns, cost);
                self.loading.admit(start_ns, begin_ns, cost, 1.0);
                ready_ns = ready_ns.max(self.loading.earliest_start_ns(begin_ns, cost));
            }
        }
        ready_ns
    }
}
