//! Latencies as distributions, given by quantiles.
//!
//! Between two quantiles the logarithm of the latency is linear in the probability. Below the
//! lowest quantile the latency is that quantile, so it is the floor. Between two sizes of requests
//! the logarithm of the latency is linear in the logarithm of the size.

use thiserror::Error;

use crate::request::Direction;

/// A distribution that cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum LatencyError {
    /// There is no quantile.
    #[error("a latency has no quantiles")]
    Empty,
    /// A probability is outside [0, 1], or not greater than the one before.
    #[error("the probabilities of a latency must rise within 0 to 1, and {0} does not")]
    Probability(f64),
    /// A latency is not positive, or less than the one before.
    #[error("the quantiles of a latency must be positive and not fall, and {0} us is or does")]
    Falling(f64),
    /// A size is not positive, or not greater than the one before.
    #[error("the sizes of a latency must be positive and rise, and {0} bytes is not or does not")]
    Size(u64),
}

/// The quantiles of the latency of requests of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    size_bytes: u64,
    points: Vec<(f64, f64)>,
}

impl Quantiles {
    /// Return the distribution with these `(probability, microseconds)`, in ascending order.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if one is out of order or not finite.
    pub fn new(size_bytes: u64, points: &[(f64, f64)]) -> Result<Self, LatencyError> {
        if size_bytes == 0 {
            return Err(LatencyError::Size(0));
        }
        let (mut last_p, mut last_us) = (-1.0, 0.0);
        for &(p, us) in points {
            if !(0.0..=1.0).contains(&p) || p <= last_p {
                return Err(LatencyError::Probability(p));
            }
            if us <= 0.0 || us < last_us || !us.is_finite() {
                return Err(LatencyError::Falling(us));
            }
            (last_p, last_us) = (p, us);
        }
        if points.is_empty() {
            return Err(LatencyError::Empty);
        }
        Ok(Self { size_bytes, points: points.to_vec() })
    }

    /// Return the size of the requests and the pairs of a probability and microseconds.
    #[must_use]
    pub fn parts(&self) -> (u64, &[(f64, f64)]) {
        (self.size_bytes, &self.points)
    }

    /// Return the latency in microseconds at a probability.
    #[must_use]
    pub fn at(&self, p: f64) -> f64 {
        let above = self.points.partition_point(|&(at, _)| at < p);
        if above == 0 {
            return self.points[0].1;
        }
        let (low_p, low_us) = self.points[above - 1];
        let Some(&(high_p, high_us)) = self.points.get(above) else { return low_us };
        between(low_us, high_us, (p - low_p) / (high_p - low_p))
    }
}

/// Latencies by direction and size, drawn from a seeded sequence.
#[derive(Debug)]
pub struct Latency {
    reads: Vec<Quantiles>,
    writes: Vec<Quantiles>,
    seed: u64,
    drawn: [u64; 2],
}

impl Latency {
    /// Return latencies of reads and writes by ascending size. A direction without distributions
    /// has none.
    ///
    /// # Errors
    ///
    /// Fails if the sizes do not rise.
    pub fn new(
        reads: Vec<Quantiles>,
        writes: Vec<Quantiles>,
        seed: u64,
    ) -> Result<Self, LatencyError> {
        for sizes in [&reads, &writes] {
            let falls = sizes.windows(2).find(|pair| pair[0].size_bytes >= pair[1].size_bytes);
            if let Some(pair) = falls {
                return Err(LatencyError::Size(pair[1].size_bytes));
            }
        }
        Ok(Self { reads, writes, seed, drawn: [0; 2] })
    }

    /// Return the distributions of a direction.
    #[must_use]
    pub fn of(&self, direction: Direction) -> &[Quantiles] {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    /// Return the latency of the next request of this direction and size, in nanoseconds.
    ///
    /// It depends on the seed and on the number of requests before it in its direction.
    pub fn draw_ns(&mut self, direction: Direction, length: u64) -> f64 {
        let (stream, sizes) = match direction {
            Direction::Read => (0, &self.reads),
            Direction::Write => (1, &self.writes),
        };
        let number = self.drawn[stream];
        self.drawn[stream] += 1;
        let p = uniform(self.seed ^ ((stream as u64) << 63), number);
        1000.0 * at_size(sizes, p, length)
    }
}

/// Return the latency in microseconds at a probability and a size; 0 without distributions.
fn at_size(sizes: &[Quantiles], p: f64, bytes: u64) -> f64 {
    let above = sizes.partition_point(|quantiles| quantiles.size_bytes < bytes);
    match (above.checked_sub(1).map(|below| &sizes[below]), sizes.get(above)) {
        (None, None) => 0.0,
        (Some(one), None) | (None, Some(one)) => one.at(p),
        (Some(low), Some(high)) => {
            let ln = |bytes: u64| (bytes.max(1) as f64).ln();
            let begin = ln(low.size_bytes);
            let share = (ln(bytes) - begin) / (ln(high.size_bytes) - begin);
            between(low.at(p), high.at(p), share)
        }
    }
}

/// Return the value between two, with linear logarithms.
fn between(low: f64, high: f64, share: f64) -> f64 {
    low * (high / low).powf(share)
}

/// Return the `number`-th value of a seeded sequence in [0, 1), by the finalizer of `SplitMix64`.
#[must_use]
pub fn uniform(seed: u64, number: u64) -> f64 {
    let mut bits = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
