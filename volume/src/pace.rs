//! The pace of a limit: how fast its time runs while the volume is degraded or paused.
//!
//! In a period with a share of one half, a limit needs two seconds for the work of one: its own
//! clock runs at half the speed. In a pause it stands still. So a limit knows nothing of events,
//! and a request that waits when a period begins or ends is delayed by exactly the part that it
//! waits in the period.

/// A part of the volume's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its begin.
    pub from_ns: f64,
    /// Its end, which may be infinite.
    pub until_ns: f64,
}

impl Span {
    /// Return whether a time lies in it.
    #[must_use]
    pub fn contains(&self, now_ns: f64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

/// A time from which on the pace is another.
#[derive(Clone, Copy, Debug)]
struct Change {
    real_ns: f64,
    limit_ns: f64,
    pace: f64,
}

/// The clock of limits, as a function of the volume's clock.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Ascending. Empty if the pace is always 1.
    changes: Vec<Change>,
}

impl Pace {
    /// Return the pace with these spans; where several overlap, their shares are multiplied.
    #[must_use]
    pub fn new(spans: &[(Span, f64)]) -> Self {
        if spans.is_empty() {
            return Self::default();
        }
        let mut edges: Vec<f64> = vec![0.0];
        edges.extend(spans.iter().flat_map(|(span, _)| [span.from_ns, span.until_ns]));
        edges.retain(|edge| edge.is_finite());
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        let mut changes: Vec<Change> = Vec::with_capacity(edges.len());
        for real_ns in edges {
            let limit_ns = changes.last().map_or(real_ns, |last| last.limit_at(real_ns));
            let inside = spans.iter().filter(|(span, _)| span.contains(real_ns));
            changes.push(Change {
                real_ns,
                limit_ns,
                pace: inside.map(|&(_, share)| share).product(),
            });
        }
        Self { changes }
    }

    /// Return the time of the limits' clock at a time of the volume's.
    #[must_use]
    pub fn limit_ns(&self, real_ns: f64) -> f64 {
        let after = self.changes.partition_point(|change| change.real_ns <= real_ns);
        match after.checked_sub(1) {
            Some(last) => self.changes[last].limit_at(real_ns),
            None => real_ns,
        }
    }

    /// Return the last time of the volume's clock at a time of the limits': in a pause, its end.
    /// Infinite if the limits' clock never goes on.
    #[must_use]
    pub fn real_ns(&self, limit_ns: f64) -> f64 {
        let after = self.changes.partition_point(|change| change.limit_ns <= limit_ns);
        let Some(last) = after.checked_sub(1) else { return limit_ns };
        let change = self.changes[last];
        if change.pace > 0.0 {
            change.real_ns + (limit_ns - change.limit_ns) / change.pace
        } else {
            f64::INFINITY
        }
    }
}

impl Change {
    fn limit_at(&self, real_ns: f64) -> f64 {
        self.limit_ns + self.pace * (real_ns - self.real_ns)
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // sums of whole numbers
mod tests {
    use super::*;

    fn span(from_ns: f64, until_ns: f64) -> Span {
        Span { from_ns, until_ns }
    }

    #[test]
    fn without_spans_both_clocks_are_one() {
        let pace = Pace::new(&[]);
        assert_eq!((pace.limit_ns(5.0), pace.real_ns(5.0)), (5.0, 5.0));
    }

    #[test]
    fn a_span_slows_the_limits_and_ends() {
        let pace = Pace::new(&[(span(10.0, 20.0), 0.5)]);
        assert_eq!(
            [5.0, 10.0, 12.0, 20.0, 21.0].map(|t| pace.limit_ns(t)),
            [5.0, 10.0, 11.0, 15.0, 16.0]
        );
        assert_eq!([5.0, 11.0, 15.0, 16.0].map(|t| pace.real_ns(t)), [5.0, 12.0, 20.0, 21.0]);
    }

    #[test]
    fn overlapping_spans_multiply() {
        let pace = Pace::new(&[(span(0.0, 10.0), 0.5), (span(5.0, f64::INFINITY), 0.1)]);
        assert_eq!(
            [4.0, 10.0, 20.0].map(|t| (pace.limit_ns(t) * 1e6).round() / 1e6),
            [2.0, 2.75, 3.75]
        );
    }

    #[test]
    fn nothing_starts_in_a_pause() {
        let pace = Pace::new(&[(span(10.0, 20.0), 0.0), (span(20.0, 25.0), 0.0)]);
        assert_eq!([9.0, 10.0, 11.0].map(|t| pace.real_ns(t)), [9.0, 25.0, 26.0]);
        let endless = Pace::new(&[(span(10.0, f64::INFINITY), 0.0)]);
        assert_eq!(endless.real_ns(endless.limit_ns(1e9)), f64::INFINITY);
    }
}
