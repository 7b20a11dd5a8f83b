//! The volume's own account of its requests, in the layout of `nvme amzn stats --output-format=json`.

use serde_json::{json, Value};

use crate::request::{Direction, Request};
use crate::spec::{Layer, Unit};

const BINS: usize = 64;

/// Counters of one direction.
#[derive(Clone, Debug, Default)]
struct Counters {
    operations: u64,
    bytes: u64,
    time_ns: f64,
    bins: Histogram,
}

/// Requests by latency. Bin `n` holds latencies from 2^(n/4) to 2^((n+1)/4) microseconds.
#[derive(Clone, Debug)]
struct Histogram([u64; BINS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BINS])
    }
}

impl Histogram {
    fn add(&mut self, latency_us: f64) {
        let bin = (4.0 * latency_us.max(1.0).log2()).floor();
        self.0[(bin as usize).min(BINS - 1)] += 1;
    }

    fn to_json(&self) -> Value {
        let bins: Vec<_> = (0i32..)
            .zip(self.0)
            .filter(|&(_, count)| count > 0)
            .map(|(bin, count)| {
                json!({"lower": edge_us(bin), "upper": edge_us(bin + 1), "count": count})
            })
            .collect();
        json!({"num_bins": bins.len(), "bins": bins})
    }
}

fn edge_us(bin: i32) -> u64 {
    if bin == 0 {
        0
    } else {
        2f64.powf(f64::from(bin) / 4.0).round() as u64
    }
}

/// Counters of all requests since the volume began.
#[derive(Clone, Debug, Default)]
pub struct Account {
    reads: Counters,
    writes: Counters,
    failed: u64,
    in_flight_ends_ns: Vec<f64>,
}

impl Account {
    /// Add a request that arrived and is replied to at these times.
    pub fn add(&mut self, request: &Request, operations: f64, now_ns: f64, done_ns: f64) {
        let counters = match request.direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        counters.operations += operations.round() as u64;
        counters.bytes += request.length;
        counters.time_ns += done_ns - now_ns;
        counters.bins.add((done_ns - now_ns) / 1000.0);
        self.in_flight_ends_ns.retain(|&end| end > now_ns);
        self.in_flight_ends_ns.push(done_ns);
    }

    /// Add a request that failed.
    pub fn add_failure(&mut self) {
        self.failed += 1;
    }

    /// Return the number of requests in flight.
    #[must_use]
    pub fn queue_length(&self, now_ns: f64) -> usize {
        self.in_flight_ends_ns.iter().filter(|&&end| end > now_ns).count()
    }

    /// Return the account as JSON, with the time for which each limit held requests back.
    #[must_use]
    pub fn to_json(&self, now_ns: f64, exceeded: &[(Layer, Unit, f64)]) -> Value {
        let exceeded_us = |layer: Layer, unit: Unit| {
            let of_limit = exceeded.iter().filter(|&&(l, u, _)| (l, u) == (layer, unit));
            of_limit.map(|&(_, _, ns)| ns / 1000.0).fold(0.0, f64::max).round() as u64
        };
        json!({
            "total_read_ops": self.reads.operations,
            "total_write_ops": self.writes.operations,
            "total_read_bytes": self.reads.bytes,
            "total_write_bytes": self.writes.bytes,
            "total_read_time": (self.reads.time_ns / 1000.0).round() as u64,
            "total_write_time": (self.writes.time_ns / 1000.0).round() as u64,
            "ebs_volume_performance_exceeded_iops": exceeded_us(Layer::Volume, Unit::Operations),
            "ebs_volume_performance_exceeded_tp": exceeded_us(Layer::Volume, Unit::Bytes),
            "ec2_instance_ebs_performance_exceeded_iops":
                exceeded_us(Layer::Instance, Unit::Operations),
            "ec2_instance_ebs_performance_exceeded_tp": exceeded_us(Layer::Instance, Unit::Bytes),
            "volume_queue_length": self.queue_length(now_ns),
            "read_io_latency_histogram": self.reads.bins.to_json(),
            "write_io_latency_histogram": self.writes.bins.to_json(),
            "failed_ops": self.failed,
        })
    }
}
