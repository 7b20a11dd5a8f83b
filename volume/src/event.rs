//! Events in the life of a volume: degradations, delays, pauses, errors and its end.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::latency::uniform;
use crate::pace::{Pace, Span};
use crate::request::Request;

/// The most events of a volume. Each is looked at for every request.
pub const MOST_EVENTS: usize = 256;

const NS_PER_SECOND: f64 = 1e9;

/// An event that cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum EventError {
    /// A number is out of its range.
    #[error("{key} of an event `{kind}` must be {range}, and is {value}")]
    Range {
        /// The event.
        kind: Kind,
        /// The number.
        key: &'static str,
        /// Its range.
        range: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number is missing.
    #[error("an event `{0}` needs {1}")]
    Missing(Kind, &'static str),
    /// A number has no meaning for this event.
    #[error("an event `{0}` has no {1}")]
    Superfluous(Kind, &'static str),
    /// There are too many.
    #[error("a volume has at most {MOST_EVENTS} events")]
    TooMany,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The limits of the volume, not those of the instance, deliver a share of their rates.
    Degrade,
    /// A share of the requests takes longer.
    Delay,
    /// No request starts.
    Pause,
    /// A share of the requests to a range fails with EIO.
    Fail,
    /// Every request fails with EIO.
    Detach,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// An event, which applies from `from_seconds` until before `until_seconds` of the volume's clock.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its kind.
    pub kind: Kind,
    /// Its begin.
    #[serde(default)]
    pub from_seconds: f64,
    /// Its end; without it, the event lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_seconds: Option<f64>,
    /// The share of the rates, or of the requests; all requests without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The additional latency of a delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// The first byte that fails; without it, that of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<u64>,
    /// The byte after those that fail; without it, the end of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_byte: Option<u64>,
}

impl Event {
    /// Return the same event this much later.
    #[must_use]
    pub fn later_by(mut self, seconds: f64) -> Self {
        self.from_seconds += seconds;
        self.until_seconds = self.until_seconds.map(|until| until + seconds);
        self
    }

    /// Check that the event has all numbers of its kind, and no others.
    ///
    /// # Errors
    ///
    /// Fails if it does not, or if one is out of its range.
    pub fn check(&self) -> Result<(), EventError> {
        let Self { from_seconds, until_seconds, share, latency_us, .. } = *self;
        self.range("from_seconds", "0 or more", from_seconds, from_seconds >= 0.0)?;
        if let Some(until) = until_seconds {
            self.range("until_seconds", "after from_seconds", until, until > from_seconds)?;
        }
        let (least, of_requests) =
            (f64::MIN_POSITIVE, matches!(self.kind, Kind::Delay | Kind::Fail));
        match (self.kind, share) {
            (Kind::Degrade, None) => return Err(EventError::Missing(self.kind, "share")),
            (Kind::Degrade, Some(share)) => {
                self.range(
                    "share",
                    "above 0 and at most 1",
                    share,
                    (least..=1.0).contains(&share),
                )?;
            }
            (_, Some(share)) if of_requests => {
                self.range("share", "within 0 and 1", share, (0.0..=1.0).contains(&share))?;
            }
            (_, Some(_)) => return Err(EventError::Superfluous(self.kind, "share")),
            (_, None) => {}
        }
        match (self.kind, latency_us) {
            (Kind::Delay, None) => Err(EventError::Missing(self.kind, "latency_us")),
            (Kind::Delay, Some(us)) => self.range("latency_us", "0 or more", us, us >= 0.0),
            (_, Some(_)) => Err(EventError::Superfluous(self.kind, "latency_us")),
            (_, None) => self.check_bytes(),
        }
    }

    fn check_bytes(&self) -> Result<(), EventError> {
        match (self.kind, self.first_byte, self.end_byte) {
            (Kind::Fail, first, Some(end)) => {
                self.range("end_byte", "above first_byte", end as f64, end > first.unwrap_or(0))
            }
            (Kind::Fail, ..) | (_, None, None) => Ok(()),
            (_, Some(_), _) => Err(EventError::Superfluous(self.kind, "first_byte")),
            _ => Err(EventError::Superfluous(self.kind, "end_byte")),
        }
    }

    fn range(
        &self,
        key: &'static str,
        range: &'static str,
        value: f64,
        is_inside: bool,
    ) -> Result<(), EventError> {
        if is_inside && value.is_finite() {
            Ok(())
        } else {
            Err(EventError::Range { kind: self.kind, key, range, value })
        }
    }

    fn span(&self) -> Span {
        let until = self.until_seconds.unwrap_or(f64::INFINITY);
        Span { from_ns: self.from_seconds * NS_PER_SECOND, until_ns: until * NS_PER_SECOND }
    }

    fn concerns(&self, request: &Request) -> bool {
        request.offset < self.end_byte.unwrap_or(u64::MAX)
            && self.first_byte.unwrap_or(0) < request.offset + request.length
    }
}

/// Return the paces of the instance's and of the volume's limits. Both stand still in a pause; only
/// the volume can be degraded.
#[must_use]
pub fn paces_of(events: &[Event]) -> [Pace; 2] {
    let spans = |kind: Kind| {
        let of_kind = events.iter().filter(move |event| event.kind == kind);
        of_kind.map(|event| (event.span(), event.share.unwrap_or(0.0)))
    };
    let pauses: Vec<_> = spans(Kind::Pause).collect();
    let all: Vec<_> = pauses.iter().copied().chain(spans(Kind::Degrade)).collect();
    [Pace::new(&pauses), Pace::new(&all)]
}

/// The effects of all events on one request, apart from those on the pace of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    /// The additional latency.
    pub delay_ns: f64,
    /// Whether it fails.
    pub fails: bool,
    /// Whether the volume is detached.
    pub detached: bool,
}

/// Return the effects on the `number`-th request, which arrives now.
#[must_use]
pub fn effect_of(
    events: &[Event],
    request: &Request,
    now_ns: f64,
    seed: u64,
    number: u64,
) -> Effect {
    let mut effect = Effect::default();
    for (index, event) in (1u64..).zip(events) {
        if !event.span().contains(now_ns) {
            continue;
        }
        let is_chosen = || uniform(seed ^ (index << 48), number) < event.share.unwrap_or(1.0);
        match event.kind {
            Kind::Delay if is_chosen() => {
                effect.delay_ns += 1000.0 * event.latency_us.unwrap_or(0.0);
            }
            Kind::Fail if event.concerns(request) && is_chosen() => effect.fails = true,
            Kind::Detach => effect.detached = true,
            _ => {}
        }
    }
    effect
}
