//! A rate over time.

use contract::median::median;
use serde::Serialize;

/// The mean rate between the previous point and this one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Seconds from the beginning of the phase.
    pub until_seconds: f64,
    /// I/Os a second.
    pub ios_per_second: f64,
}

/// Return the series as the report has it.
pub fn rounded_rates(rates: &[Rate]) -> Vec<Rate> {
    let point = |rate: &Rate| Rate {
        until_seconds: rounded(rate.until_seconds),
        ios_per_second: rounded(rate.ios_per_second),
    };
    rates.iter().map(point).collect()
}

/// Round to a thousandth: more digits would only look exact.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Return the median of a part of the series, which one outlier does not change.
pub fn middle(rates: &[Rate]) -> f64 {
    median(rates.iter().map(|rate| rate.ios_per_second)).unwrap_or_default()
}

/// Return the mean of a part of the series.
pub fn mean(rates: &[Rate]) -> f64 {
    rates.iter().map(|rate| rate.ios_per_second).sum::<f64>() / rates.len() as f64
}
