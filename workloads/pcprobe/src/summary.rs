//! The most important figures of the phases; a figure is null if its phase has none.

use crate::outcome::Outcome;
use crate::series::rounded;
use contract::latency::LatencyFigures;
use serde::Serialize;

/// Fraction of the best depth's rate that the knee must reach.
const KNEE_SHARE: f64 = 0.9;

/// The plateau of each kind of load, the knees, and the latency of a single I/O and at the knee.
#[derive(Debug, Serialize)]
pub struct Summary {
    sequential_read_bytes_per_second: Option<f64>,
    sequential_write_bytes_per_second: Option<f64>,
    random_read_ios_per_second: Option<f64>,
    random_write_ios_per_second: Option<f64>,
    random_read_knee_depth: Option<usize>,
    random_write_knee_depth: Option<usize>,
    read_latency_us: Option<LatencyFigures>,
    write_latency_us: Option<LatencyFigures>,
    read_knee_latency_us: Option<LatencyFigures>,
    write_knee_latency_us: Option<LatencyFigures>,
}

/// Summarise the phases.
pub fn summary(outcomes: &[Outcome]) -> Summary {
    let plateau = |name: &str| find(outcomes, name).and_then(Outcome::plateau);
    let bytes = |name: &str| {
        let block_bytes = find(outcomes, name)?.phase.block_bytes;
        plateau(name).map(|ios| (ios * block_bytes as f64).round())
    };
    let (read_knee, write_knee) = (knee(outcomes, "random_read"), knee(outcomes, "random_write"));
    Summary {
        sequential_read_bytes_per_second: bytes("sequential_read"),
        sequential_write_bytes_per_second: bytes("sequential_write"),
        random_read_ios_per_second: plateau("random_read_sustained").map(rounded),
        random_write_ios_per_second: plateau("random_write_sustained").map(rounded),
        random_read_knee_depth: read_knee,
        random_write_knee_depth: write_knee,
        read_latency_us: latency_at(outcomes, "random_read", Some(1)),
        write_latency_us: latency_at(outcomes, "random_write", Some(1)),
        read_knee_latency_us: latency_at(outcomes, "random_read", read_knee),
        write_knee_latency_us: latency_at(outcomes, "random_write", write_knee),
    }
}

fn find<'a>(outcomes: &'a [Outcome], name: &str) -> Option<&'a Outcome> {
    outcomes.iter().find(|outcome| outcome.phase.name == name)
}

/// Return the least depth whose rate is nearly the best.
fn knee(outcomes: &[Outcome], name: &str) -> Option<usize> {
    let known = |outcome: &&Outcome| outcome.phase.name == name && outcome.rate().is_some();
    let steps: Vec<&Outcome> = outcomes.iter().filter(known).collect();
    let best = steps.iter().filter_map(|step| step.rate()).max_by(f64::total_cmp)?;
    steps.iter().find(|step| step.rate() >= Some(KNEE_SHARE * best)).map(|step| step.phase.depth)
}

fn latency_at(outcomes: &[Outcome], name: &str, depth: Option<usize>) -> Option<LatencyFigures> {
    let is_it =
        |outcome: &&Outcome| outcome.phase.name == name && Some(outcome.phase.depth) == depth;
    outcomes.iter().find(is_it).and_then(Outcome::latency_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::phases;
    use crate::tally::Figures;
    use serde_json::{json, Value};
    use std::time::Duration;

    fn outcomes(rate_of: impl Fn(usize) -> Option<f64>) -> Vec<Outcome> {
        let outcome = |phase: crate::phase::Phase| {
            let figures = Figures {
                ios_per_second: rate_of(phase.depth),
                seconds: 1.0,
                ..Figures::default()
            };
            Outcome::measured(phase, figures, None, None)
        };
        phases(Duration::from_secs(60)).into_iter().map(outcome).collect()
    }

    #[test]
    fn the_knee_is_where_more_depth_gives_nothing() {
        let found = json!(summary(&outcomes(|depth| Some((depth as f64 * 100.0).min(500.0)))));
        assert_eq!(found["random_read_knee_depth"], 8);
        assert_eq!(found["random_read_ios_per_second"], 500.0);
        assert_eq!(found["sequential_read_bytes_per_second"], 500.0 * f64::from(1 << 20));
    }

    #[test]
    fn a_figure_of_no_phase_is_null() {
        let found = json!(summary(&outcomes(|_| None)));
        assert!(found.as_object().unwrap().values().all(Value::is_null), "{found}");
    }
}
