//! The description of a volume, as JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::Event;
use crate::latency::{LatencyError, Quantiles};

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
}

/// A volume: its file, limits, latencies and events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// The file that holds the data. Its length is the volume's.
    pub file: PathBuf,
    /// Limits of all layers, such as the volume and the instance.
    #[serde(default)]
    pub limits: Vec<LimitSpec>,
    /// The rules of counting I/Os.
    #[serde(default)]
    pub accounting: AccountingSpec,
    /// Latencies of reads below all limits.
    #[serde(default)]
    pub read_latency: Vec<QuantilesSpec>,
    /// Latencies of writes below all limits.
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
    /// The factor by which rates are divided and latencies multiplied.
    #[serde(default = "one")]
    pub dilation: f64,
    /// The file to which the account is written when the volume ends.
    #[serde(default)]
    pub account_file: Option<PathBuf>,
    /// The socket that takes commands while the volume is served.
    #[serde(default)]
    pub control_socket: Option<PathBuf>,
}

fn one() -> f64 {
    1.0
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

impl VolumeSpec {
    /// Read a description.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is no description, or has a number out of its range.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| SpecError::Unreadable(path.to_path_buf(), error))?;
        let spec: Self = serde_json::from_str(&text)
            .map_err(|error| SpecError::Invalid(path.to_path_buf(), error))?;
        spec.check()?;
        Ok(spec)
    }

    /// Return the latencies of reads and of writes, multiplied by the dilation.
    ///
    /// # Errors
    ///
    /// Fails if one is not a distribution.
    pub fn latencies(&self) -> Result<[Vec<Quantiles>; 2], SpecError> {
        let quantiles = |specs: &[QuantilesSpec]| -> Result<Vec<Quantiles>, LatencyError> {
            specs
                .iter()
                .map(|spec| {
                    let points: Vec<_> =
                        spec.quantiles.iter().map(|&(p, us)| (p, us * self.dilation)).collect();
                    Quantiles::new(spec.size_bytes, &points)
                })
                .collect()
        };
        Ok([quantiles(&self.read_latency)?, quantiles(&self.write_latency)?])
    }

    fn check(&self) -> Result<(), SpecError> {
        let positive = |name: &str, value: f64| {
            if value > 0.0 && value.is_finite() {
                Ok(())
            } else {
                Err(SpecError::Value(format!("{name} must be positive, and is {value}")))
            }
        };
        positive("dilation", self.dilation)?;
        for limit in &self.limits {
            positive("per_second", limit.per_second)?;
            if let Some(credits) = &limit.credits {
                positive("capacity", credits.capacity)?;
                if credits.burst_per_second <= limit.per_second {
                    return Err(SpecError::Value(format!(
                        "burst_per_second {} must be above per_second {}",
                        credits.burst_per_second, limit.per_second
                    )));
                }
                if !(0.0..=credits.capacity).contains(&credits.start) {
                    return Err(SpecError::Value(format!(
                        "start {} must lie within 0 and the capacity {}",
                        credits.start, credits.capacity
                    )));
                }
            }
        }
        if self.accounting.io_size_bytes == Some(0) {
            return Err(SpecError::Value("io_size_bytes must be positive, and is 0".into()));
        }
        if let Some(restore) = &self.restore {
            positive("bytes_per_second", restore.bytes_per_second)?;
            positive("block_bytes", restore.block_bytes as f64)?;
        }
        self.latencies().map(drop)
    }
}
