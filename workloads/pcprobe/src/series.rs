//! A rate over time.

use serde_json::{json, Value};

/// The mean rate between the point before and this one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Seconds from the beginning of the phase.
    pub until_seconds: f64,
    /// I/Os a second.
    pub ios_per_second: f64,
}

/// The series as it stands in the JSON.
#[must_use]
pub fn to_json(rates: &[Rate]) -> Value {
    let point = |rate: &Rate| json!({"until_seconds": rounded(rate.until_seconds), "ios_per_second": rounded(rate.ios_per_second)});
    rates.iter().map(point).collect()
}

/// To a thousandth: more digits would only look exact.
#[must_use]
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// The median of a part of the series, which one odd point does not move.
#[must_use]
pub fn median(rates: &[Rate]) -> f64 {
    let mut sorted: Vec<f64> = rates.iter().map(|rate| rate.ios_per_second).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(low, high)
}

/// The mean of a part of the series.
#[must_use]
pub fn mean(rates: &[Rate]) -> f64 {
    rates.iter().map(|rate| rate.ios_per_second).sum::<f64>() / rates.len() as f64
}
