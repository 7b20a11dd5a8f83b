//! The description of a model, as JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::{Event, EventError, MOST_EVENTS};
use crate::latency::{LatencyError, Quantiles};

/// The smallest block of a restore. A volume of 16 TiB then has 512 MiB of state.
const LEAST_BLOCK_BYTES: u64 = 4096;

/// A description that cannot be used.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// The file is not a description.
    #[error("{0}: {1}")]
    Invalid(PathBuf, serde_json::Error),
    /// A number is out of its range.
    #[error("{0}")]
    Value(String),
    /// A latency is not a distribution.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// An event is not complete.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// A model: limits, latencies and events. An empty one has no limits and no latencies.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Limits of all layers, such as the volume and the instance.
    #[serde(default)]
    pub limits: Vec<LimitSpec>,
    /// The rules of counting I/Os.
    #[serde(default)]
    pub accounting: AccountingSpec,
    /// Latencies of reads below all limits, by ascending size.
    #[serde(default)]
    pub read_latency: Vec<QuantilesSpec>,
    /// Latencies of writes below all limits, by ascending size.
    #[serde(default)]
    pub write_latency: Vec<QuantilesSpec>,
    /// A restore from a snapshot, if the volume was created from one.
    #[serde(default)]
    pub restore: Option<RestoreSpec>,
    /// Events at times of the volume's clock.
    #[serde(default)]
    pub events: Vec<Event>,
    /// The seed of latencies and of random events.
    #[serde(default)]
    pub seed: u64,
    /// The time that a request needs between the program and the server, in microseconds. Replies
    /// are sent so much earlier.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub path_us: f64,
}

/// The requests that share a limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Reads and writes together.
    Both,
    /// Reads alone.
    Read,
    /// Writes alone.
    Write,
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Operations, counted by the provider's rules.
    Operations,
    /// Bytes.
    Bytes,
}

/// The layer that a limit belongs to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The volume.
    Volume,
    /// The machine that it is attached to.
    Instance,
}

/// One limit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSpec {
    /// Its layer.
    pub layer: Layer,
    /// The requests that share it.
    pub scope: Scope,
    /// Its unit.
    pub unit: Unit,
    /// The rate; with credits, the base rate.
    pub per_second: f64,
    /// Credits for a higher rate.
    #[serde(default)]
    pub credits: Option<CreditsSpec>,
}

/// Credits above a base rate.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreditsSpec {
    /// The rate while credits last.
    pub burst_per_second: f64,
    /// The most credits.
    pub capacity: f64,
    /// The credits at the start.
    pub start: f64,
}

/// The rules of counting operations.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccountingSpec {
    /// The size above which a request counts as several operations.
    #[serde(default)]
    pub io_size_bytes: Option<u64>,
    /// Whether adjacent requests are merged up to that size before they are counted.
    #[serde(default)]
    pub merged: bool,
}

/// Quantiles of the latency of requests of one size.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QuantilesSpec {
    /// The size of the requests.
    pub size_bytes: u64,
    /// Pairs of a probability and a latency in microseconds, ascending.
    pub quantiles: Vec<(f64, f64)>,
}

/// The first touch of each block of a volume that was created from a snapshot.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreSpec {
    /// The rate at which blocks are loaded.
    pub bytes_per_second: f64,
    /// The size of a block.
    pub block_bytes: u64,
}

impl ModelSpec {
    /// Read a description.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a description.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| SpecError::Unreadable(path.to_path_buf(), error))?;
        serde_json::from_str(&text).map_err(|error| SpecError::Invalid(path.to_path_buf(), error))
    }

    /// Check all numbers except those of latencies.
    ///
    /// # Errors
    ///
    /// Fails if one is out of its range.
    pub fn check(&self) -> Result<(), SpecError> {
        self.limits.iter().try_for_each(LimitSpec::check)?;
        if self.accounting.io_size_bytes == Some(0) {
            return Err(SpecError::Value("io_size_bytes must be positive, and is 0".into()));
        }
        if !(0.0..f64::INFINITY).contains(&self.path_us) {
            let reason = format!("path_us must be 0 or more, and is {}", self.path_us);
            return Err(SpecError::Value(reason));
        }
        if let Some(restore) = &self.restore {
            positive("bytes_per_second", restore.bytes_per_second)?;
            if restore.block_bytes < LEAST_BLOCK_BYTES {
                return Err(SpecError::Value(format!(
                    "block_bytes must be {LEAST_BLOCK_BYTES} or more, and is {}",
                    restore.block_bytes
                )));
            }
        }
        if self.events.len() > MOST_EVENTS {
            return Err(EventError::TooMany.into());
        }
        Ok(self.events.iter().try_for_each(Event::check)?)
    }

    /// Return the latencies of reads and of writes.
    ///
    /// # Errors
    ///
    /// Fails if one is not a distribution.
    pub fn latencies(&self) -> Result<[Vec<Quantiles>; 2], LatencyError> {
        let quantiles = |specs: &[QuantilesSpec]| -> Result<Vec<_>, _> {
            specs.iter().map(|spec| Quantiles::new(spec.size_bytes, &spec.quantiles)).collect()
        };
        Ok([quantiles(&self.read_latency)?, quantiles(&self.write_latency)?])
    }
}

impl LimitSpec {
    fn check(&self) -> Result<(), SpecError> {
        positive("per_second", self.per_second)?;
        let Some(CreditsSpec { burst_per_second, capacity, start }) = self.credits else {
            return Ok(());
        };
        positive("capacity", capacity)?;
        if burst_per_second <= self.per_second || !burst_per_second.is_finite() {
            let base = self.per_second;
            return Err(SpecError::Value(format!(
                "burst_per_second must be above per_second {base}, and is {burst_per_second}"
            )));
        }
        if !(0.0..=capacity).contains(&start) {
            return Err(SpecError::Value(format!(
                "start must lie within 0 and the capacity {capacity}, and is {start}"
            )));
        }
        Ok(())
    }
}

impl QuantilesSpec {
    /// Return the description of a distribution.
    #[must_use]
    pub fn describe(quantiles: &Quantiles) -> Self {
        let (size_bytes, points) = quantiles.parts();
        Self { size_bytes, quantiles: points.to_vec() }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn positive(name: &str, value: f64) -> Result<(), SpecError> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(SpecError::Value(format!("{name} must be positive, and is {value}")))
    }
}
