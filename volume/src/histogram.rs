//! A histogram of latencies with bins of 1/32 of an octave, at most 3.1 % wide.

use serde_json::{json, Value};

/// Bins per octave. The first octave begins at one microsecond.
const PARTS: usize = 32;
const OCTAVES: usize = 32;

/// Latencies from one microsecond to 71 minutes; one bin for those below, and the last also for
/// those above.
#[derive(Clone, Debug)]
pub struct Histogram(Box<[u64; 1 + PARTS * OCTAVES]>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Box::new([0; 1 + PARTS * OCTAVES]))
    }
}

impl Histogram {
    /// Count a latency.
    pub fn add(&mut self, latency_ns: u64) {
        self.0[bin(latency_ns)] += 1;
    }

    /// Return the filled bins as pairs of an upper edge in microseconds and a count.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let filled = self.0.iter().enumerate().filter(|&(_, &count)| count > 0);
        filled.map(|(bin, count)| json!([upper_us(bin), count])).collect()
    }

    /// Return 64 bins of half an octave in the layout of `nvme amzn stats`, the empty ones
    /// included. Real volumes report 28 bins of an octave (Netflix/spectatord, `ebs.h`).
    #[must_use]
    pub fn to_nvme_json(&self) -> Value {
        let mut bins = vec![nvme_bin(0, 1, self.0[0])];
        // The first octave, 1 to 2 us, has no edge between whole microseconds.
        bins.push(nvme_bin(1, 2, self.count(0, 0..PARTS)));
        for octave in 1..OCTAVES {
            let begin = 1u64 << octave;
            let middle = begin + begin / 2;
            bins.push(nvme_bin(begin, middle, self.count(octave, 0..PARTS / 2)));
            bins.push(nvme_bin(middle, 2 * begin, self.count(octave, PARTS / 2..PARTS)));
        }
        json!({"num_bins": bins.len(), "bins": bins})
    }

    fn count(&self, octave: usize, parts: std::ops::Range<usize>) -> u64 {
        let first = 1 + octave * PARTS;
        self.0[first + parts.start..first + parts.end].iter().sum()
    }
}

fn nvme_bin(lower: u64, upper: u64, count: u64) -> Value {
    json!({"lower": lower, "upper": upper, "count": count})
}

/// Return the bin of a latency.
#[allow(clippy::cast_possible_truncation)] // 32 / 1000 of 64 bits
fn bin(latency_ns: u64) -> usize {
    // In 32nds of a microsecond, the highest bit is the octave and the next five are the part.
    let parts = (u128::from(latency_ns) * PARTS as u128 / 1000) as u64;
    if parts < PARTS as u64 {
        return 0;
    }
    let octave = (parts.ilog2() - PARTS.ilog2()) as usize;
    let part = (parts >> octave) as usize - PARTS;
    (1 + octave * PARTS + part).min(PARTS * OCTAVES)
}

fn upper_us(bin: usize) -> f64 {
    let Some(above) = bin.checked_sub(1) else { return 1.0 };
    let octave = (1u64 << (above / PARTS)) as f64;
    octave * ((PARTS + above % PARTS + 1) as f64 / PARTS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_latency_lies_below_the_edge_of_its_bin_by_a_thirtysecond_at_most(
            latency_ns in 1_000u64..4_000_000_000_000,
        ) {
            let upper_ns = upper_us(bin(latency_ns)) * 1000.0;
            let latency_ns = latency_ns as f64;
            prop_assert!(upper_ns > latency_ns && upper_ns <= latency_ns * (33.0 / 32.0) + 1e-6);
        }

        #[test]
        fn the_bins_of_nvme_hold_the_same_latencies(latency_us in 0u64..4_000_000_000) {
            let mut histogram = Histogram::default();
            histogram.add(latency_us * 1000);
            let nvme = histogram.to_nvme_json();
            prop_assert_eq!(&nvme["num_bins"], 64);
            let bins = nvme["bins"].as_array().unwrap();
            let filled: Vec<_> = bins.iter().filter(|bin| bin["count"] == 1).collect();
            let edge = |bin: &Value, key: &str| bin[key].as_u64().unwrap();
            let edges = |bin: &Value| (edge(bin, "lower"), edge(bin, "upper"));
            prop_assert_eq!(filled.len(), 1);
            let (lower, upper) = edges(filled[0]);
            prop_assert!((lower..upper).contains(&latency_us));
            prop_assert!(bins.windows(2).all(|pair| edges(&pair[0]).1 == edges(&pair[1]).0));
        }
    }

    #[test]
    fn the_ends_of_the_range_count_too() {
        let mut histogram = Histogram::default();
        histogram.add(0);
        histogram.add(u64::MAX);
        assert_eq!(histogram.to_json(), json!([[1.0, 1], [4_294_967_296.0, 1]]));
    }
}
