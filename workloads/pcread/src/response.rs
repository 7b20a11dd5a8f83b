//! The figures of this workload: names with units, null if a thing was not counted.

use crate::events::Events;
use crate::proc::MappedBytes;
use crate::residency::ResidencyFigures;
use contract::latency::LatencyFigures;
use contract::median::median;
use serde::Serialize;

/// The figures that the response is derived from.
#[derive(Debug, Clone)]
pub struct Basis<'a> {
    /// Duration of each complete pass, in order.
    pub pass_seconds: &'a [f64],
    /// Whether more than one pass was requested.
    pub has_passes: bool,
    /// Duration of all passes.
    pub seconds: f64,
    /// Blocks of all passes.
    pub blocks: u64,
    /// Bytes of the first pass, each counted as often as it was read.
    pub first_bytes: u64,
    /// Bytes of the first pass, each counted once; None if nobody counted them.
    pub distinct_bytes: Option<u64>,
    /// Faults that found their page in memory.
    pub minor_faults: i64,
    /// Events that the CPUs counted in all passes, if they counted in each.
    pub events: Option<Events>,
    /// TLB shootdowns of the whole machine during the passes.
    pub tlb_shootdowns: Option<u64>,
    /// Blocks found in the process's own cache, and all requested blocks.
    pub hits: Option<(u64, u64)>,
    /// Durations of the sampled blocks.
    pub latency: LatencyFigures,
    /// This process's mappings.
    pub mapped: MappedBytes,
}

/// The object in the closing line.
#[derive(Debug, Serialize)]
pub struct Response {
    blocks_per_second: Option<f64>,
    distinct_fraction: Option<f64>,
    minor_faults: i64,
    tlb_shootdowns: Option<u64>,
    block_p50_us: Option<f64>,
    block_p99_us: Option<f64>,
    block_max_us: Option<f64>,
    anon_huge_pages_bytes: Option<u64>,
    file_pmd_mapped_bytes: Option<u64>,
    cache_references_per_block: Option<f64>,
    cache_misses_per_block: Option<f64>,
    dtlb_load_misses_per_block: Option<f64>,
    #[serde(flatten)]
    cache: Option<CacheFigures>,
    #[serde(flatten)]
    residency: ResidencyFigures,
    #[serde(flatten)]
    passes: Option<PassFigures>,
}

/// The figures of the process's own cache.
#[derive(Debug, Serialize)]
struct CacheFigures {
    cache_hit_fraction: Option<f64>,
}

/// The first passes one by one, and a comparison of the last with the first.
#[derive(Debug, Serialize)]
struct PassFigures {
    pass_1_seconds: Option<f64>,
    pass_2_seconds: Option<f64>,
    pass_3_seconds: Option<f64>,
    pass_first_tenth_seconds: Option<f64>,
    pass_last_tenth_seconds: Option<f64>,
    pass_hike_seconds: Option<f64>,
}

impl Basis<'_> {
    /// Return the object for the closing line.
    pub fn response(&self, residency: ResidencyFigures) -> Response {
        let per_block = |index: usize| {
            let count = self.events.map(|events| events.0[index] / self.blocks as f64);
            count.filter(|count| count.is_finite())
        };
        Response {
            blocks_per_second: (self.seconds > 0.0).then(|| self.blocks as f64 / self.seconds),
            distinct_fraction: self.distinct_bytes.and_then(|n| fraction(n, self.first_bytes)),
            minor_faults: self.minor_faults,
            tlb_shootdowns: self.tlb_shootdowns,
            block_p50_us: self.latency.p50,
            block_p99_us: self.latency.p99,
            block_max_us: self.latency.max,
            anon_huge_pages_bytes: self.mapped.anon_huge_pages_bytes,
            file_pmd_mapped_bytes: self.mapped.file_pmd_mapped_bytes,
            cache_references_per_block: per_block(0),
            cache_misses_per_block: per_block(1),
            dtlb_load_misses_per_block: per_block(2),
            cache: self
                .hits
                .map(|(hits, asked)| CacheFigures { cache_hit_fraction: fraction(hits, asked) }),
            residency,
            passes: self.has_passes.then(|| PassFigures::of(self.pass_seconds)),
        }
    }
}

impl PassFigures {
    fn of(seconds: &[f64]) -> Self {
        let (first, last) = tenths(seconds).unzip();
        Self {
            pass_1_seconds: seconds.first().copied(),
            pass_2_seconds: seconds.get(1).copied(),
            pass_3_seconds: seconds.get(2).copied(),
            pass_first_tenth_seconds: first,
            pass_last_tenth_seconds: last,
            pass_hike_seconds: hike(seconds),
        }
    }
}

/// Return the medians of the first and of the last tenth, at least one pass each; None if these
/// would be the same one.
fn tenths(seconds: &[f64]) -> Option<(f64, f64)> {
    let count = (seconds.len() / 10).max(1);
    let middle = |part: &[f64]| median(part.iter().copied());
    let last = seconds.len().checked_sub(count).filter(|last| *last > 0)?;
    middle(&seconds[..count]).zip(middle(&seconds[last..]))
}

/// Return the longest pass after the fastest.
fn hike(seconds: &[f64]) -> Option<f64> {
    let quickest =
        (0..seconds.len()).min_by(|one, other| seconds[*one].total_cmp(&seconds[*other]))?;
    seconds[quickest + 1..].iter().copied().max_by(f64::total_cmp)
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::latency::Histogram;
    use serde_json::json;

    #[test]
    fn the_last_tenth_is_held_against_the_first() {
        let seconds: Vec<f64> = (1..=40).map(f64::from).collect();
        assert_eq!(tenths(&seconds), Some((2.5, 38.5)));
        assert_eq!(tenths(&[3.0, 1.0]), Some((3.0, 1.0)));
        assert_eq!(tenths(&[3.0]), None);
    }

    #[test]
    fn a_hike_is_what_comes_after_the_quickest() {
        assert_eq!(hike(&[9.0, 1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(hike(&[9.0, 1.0]), None);
    }

    #[test]
    fn what_was_not_counted_is_null_and_not_zero() {
        let basis = Basis {
            pass_seconds: &[],
            has_passes: true,
            seconds: 0.0,
            blocks: 0,
            first_bytes: 0,
            distinct_bytes: Some(0),
            minor_faults: 0,
            events: None,
            tlb_shootdowns: None,
            hits: None,
            latency: Histogram::new().figures(),
            mapped: MappedBytes::default(),
        };
        let found = json!(basis.response(ResidencyFigures::default()));
        for name in [
            "blocks_per_second",
            "cache_misses_per_block",
            "pass_2_seconds",
            "pass_last_tenth_seconds",
        ] {
            assert!(found[name].is_null(), "{name}");
            assert!(found.as_object().unwrap().contains_key(name), "{name}");
        }
    }
}
