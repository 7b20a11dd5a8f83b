//! The figures that a run gives for itself: names with units, null where a thing was not counted.

use crate::events::Events;
use serde_json::{json, Map, Value};

/// What the figures are made of.
#[derive(Debug)]
pub struct Basis<'a> {
    /// How long each whole pass took, in order.
    pub pass_seconds: &'a [f64],
    /// Whether more than one pass was asked for.
    pub has_passes: bool,
    /// All passes together.
    pub seconds: f64,
    /// Blocks of all passes.
    pub blocks: u64,
    /// Bytes of the first pass, each as often as it was read.
    pub first_bytes: u64,
    /// Bytes of the first pass, each once.
    pub distinct_bytes: u64,
    /// Faults that found their page in memory.
    pub minor_faults: i64,
    /// What the CPUs counted in all passes, where they did in each.
    pub events: Option<Events>,
    /// TLB shootdowns of the whole machine during the passes.
    pub tlb_shootdowns: Option<u64>,
    /// Blocks found in the process's own cache, and all that were asked for.
    pub hits: Option<(u64, u64)>,
    /// The block latencies of the closing line.
    pub latency: &'a Value,
    /// The mappings of the closing line.
    pub smaps: &'a Value,
    /// What of the file was in the page cache when.
    pub residency: Map<String, Value>,
}

impl Basis<'_> {
    /// The object for the closing line.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut found = Map::new();
        let mut say = |name: &str, value: Value| found.insert(name.to_owned(), value);
        say("blocks_per_second", json!((self.seconds > 0.0).then(|| self.blocks as f64 / self.seconds)));
        say("distinct_fraction", json!(fraction(self.distinct_bytes, self.first_bytes)));
        say("minor_faults", json!(self.minor_faults));
        say("tlb_shootdowns", json!(self.tlb_shootdowns));
        for (name, key) in [("block_p50_us", "p50"), ("block_p99_us", "p99"), ("block_max_us", "max")] {
            say(name, self.latency[key].clone());
        }
        for name in ["anon_huge_pages_bytes", "file_pmd_mapped_bytes"] {
            say(name, self.smaps[name].clone());
        }
        for (index, name) in Events::names().enumerate() {
            let count = self.events.map(|events| events.0[index] / self.blocks as f64);
            say(&format!("{name}_per_block"), json!(count.filter(|count| count.is_finite())));
        }
        if let Some((hits, asked)) = self.hits {
            say("cache_hit_fraction", json!(fraction(hits, asked)));
        }
        found.extend(self.residency.clone());
        if self.has_passes {
            found.extend(self.of_passes());
        }
        Value::Object(found)
    }

    /// The first passes one by one, and how the last compare with the first.
    fn of_passes(&self) -> Map<String, Value> {
        let single = |pass: usize| (format!("pass_{}_seconds", pass + 1), json!(self.pass_seconds.get(pass)));
        let (first, last) = tenths(self.pass_seconds).unzip();
        let ends = [
            ("pass_first_tenth_seconds", json!(first)),
            ("pass_last_tenth_seconds", json!(last)),
            ("pass_hike_seconds", json!(hike(self.pass_seconds))),
        ];
        (0..3).map(single).chain(ends.map(|(name, value)| (name.to_owned(), value))).collect()
    }
}

/// The medians of the first and of the last tenth, at least one pass each; none where these would be the same one.
fn tenths(seconds: &[f64]) -> Option<(f64, f64)> {
    let count = (seconds.len() / 10).max(1);
    (seconds.len() > 1).then(|| (median(&seconds[..count]), median(&seconds[seconds.len() - count..])))
}

/// The longest pass after the quickest: how far it went back.
fn hike(seconds: &[f64]) -> Option<f64> {
    let quickest = (0..seconds.len()).min_by(|one, other| seconds[*one].total_cmp(&seconds[*other]))?;
    seconds[quickest + 1..].iter().copied().max_by(f64::total_cmp)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let nothing = Value::Null;
        let basis = Basis {
            pass_seconds: &[],
            has_passes: true,
            seconds: 0.0,
            blocks: 0,
            first_bytes: 0,
            distinct_bytes: 0,
            minor_faults: 0,
            events: None,
            tlb_shootdowns: None,
            hits: None,
            latency: &nothing,
            smaps: &nothing,
            residency: Map::new(),
        };
        let found = basis.to_json();
        for name in
            ["blocks_per_second", "cache_misses_per_block", "pass_2_seconds", "pass_last_tenth_seconds"]
        {
            assert!(found[name].is_null(), "{name}");
            assert!(found.as_object().unwrap().contains_key(name), "{name}");
        }
    }
}
