//! The volume's own account of its requests: the counters of `nvme amzn stats --output-
//! format=json`, and under `pcvolume` what a real volume does not report.

use serde_json::{json, Value};

use crate::histogram::Histogram;
use crate::limit::RateChange;
use crate::request::{Decision, Direction, Request};
use crate::spec::{Layer, Scope, Unit};

/// A reply is late if it is this much later than the model decided, and later by more than a
/// [`LATE_PART`] of the time that the model gave the request. Waking a thread takes up to half of it.
pub const LATE_NS: u64 = 100_000;

/// The part of a request's time that it may be late: 5 %, as exact as the latencies are.
pub const LATE_PART: u64 = 20;

/// Operations that the model does not limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// A flush of earlier writes.
    Flush,
    /// A discard.
    Trim,
    /// Zeroes that are written without data.
    Zero,
}

/// Counters of one direction.
#[derive(Clone, Debug, Default)]
struct Counters {
    requests: u64,
    bytes: u64,
    time_ns: u64,
    charged_operations: u64,
    latencies: Histogram,
}

/// Replies that were later than the model decided.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    all_ns: u64,
    requests: u64,
    late_ns: u64,
    longest_ns: u64,
}

/// The number of requests in flight, and its integral over time.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    number: u64,
    since_ns: u64,
    integral_ns: u64,
}

impl InFlight {
    fn at(&self, now_ns: u64) -> u64 {
        self.integral_ns + self.number * now_ns.saturating_sub(self.since_ns)
    }

    fn become_number(&mut self, number: u64, now_ns: u64) {
        self.integral_ns = self.at(now_ns);
        self.since_ns = self.since_ns.max(now_ns);
        self.number = number;
    }
}

/// The use of one limit.
#[derive(Clone, Debug)]
pub struct LimitUse {
    /// Its layer.
    pub layer: Layer,
    /// The requests that share it.
    pub scope: Scope,
    /// Its unit.
    pub unit: Unit,
    /// Its rate; with credits, the base rate.
    pub per_second: f64,
    /// The operations or bytes that it let through.
    pub used: f64,
    /// The time in which it held requests back, in nanoseconds.
    pub exceeded_ns: f64,
    /// Its credits now.
    pub level: Option<f64>,
    /// The changes between burst and base rate.
    pub changes: Vec<RateChange>,
}

/// Counters of all requests since the model was configured.
#[derive(Clone, Debug, Default)]
pub struct Account {
    reads: Counters,
    writes: Counters,
    in_flight: InFlight,
    failed: u64,
    upkeep: [u64; 3],
    upkeep_ns: u64,
    lateness: Lateness,
    last_error: Option<String>,
}

impl Account {
    /// Count a request that arrives, for which the provider counts this many operations.
    pub fn arrive(&mut self, direction: Direction, operations: u64, now_ns: u64) {
        self.of(direction).charged_operations += operations;
        self.in_flight.become_number(self.in_flight.number + 1, now_ns);
    }

    /// Count the reply to a request, which the program feels at `felt_ns`: the time of the path is
    /// part of its latency. `error` is that of the file below.
    pub fn complete(
        &mut self,
        request: &Request,
        decision: &Decision,
        now_ns: u64,
        felt_ns: u64,
        error: Option<String>,
    ) {
        self.in_flight.become_number(self.in_flight.number.saturating_sub(1), now_ns);
        if decision.fails || error.is_some() {
            self.fail(error);
            return;
        }
        let latency_ns = felt_ns.saturating_sub(decision.arrived_ns);
        let counters = self.of(request.direction);
        counters.requests += 1;
        counters.bytes += request.length;
        counters.time_ns += latency_ns;
        counters.latencies.add(latency_ns);
        self.lateness.add(decision, now_ns);
    }

    /// Count a flush, a discard or zeroes, which took this long.
    pub fn keep_up(&mut self, upkeep: Upkeep, duration_ns: u64) {
        self.upkeep[upkeep as usize] += 1;
        self.upkeep_ns += duration_ns;
    }

    /// Count an operation that failed. `error` is that of the file below.
    pub fn fail(&mut self, error: Option<String>) {
        self.failed += 1;
        self.last_error = error.or(self.last_error.take());
    }

    fn of(&mut self, direction: Direction) -> &mut Counters {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    /// Return the account as JSON.
    #[must_use]
    pub fn to_json(&self, limits: &[LimitUse], now_ns: u64) -> Value {
        json!({
            "total_read_ops": self.reads.requests,
            "total_write_ops": self.writes.requests,
            "total_read_bytes": self.reads.bytes,
            "total_write_bytes": self.writes.bytes,
            "total_read_time": us(self.reads.time_ns),
            "total_write_time": us(self.writes.time_ns),
            "ebs_volume_performance_exceeded_iops":
                exceeded_us(limits, Layer::Volume, Unit::Operations),
            "ebs_volume_performance_exceeded_tp": exceeded_us(limits, Layer::Volume, Unit::Bytes),
            "ec2_instance_ebs_performance_exceeded_iops":
                exceeded_us(limits, Layer::Instance, Unit::Operations),
            "ec2_instance_ebs_performance_exceeded_tp":
                exceeded_us(limits, Layer::Instance, Unit::Bytes),
            "volume_queue_length": self.in_flight.number,
            "read_io_latency_histogram": self.reads.latencies.to_nvme_json(),
            "write_io_latency_histogram": self.writes.latencies.to_nvme_json(),
            "pcvolume": self.own_json(limits, now_ns),
        })
    }

    fn own_json(&self, limits: &[LimitUse], now_ns: u64) -> Value {
        json!({
            "seconds": seconds(now_ns as f64),
            "failed_ops": self.failed,
            "last_error": self.last_error,
            "late_ops": self.lateness.requests,
            "late_us": us(self.lateness.late_ns),
            "late_max_us": us(self.lateness.longest_ns),
            "delay_us": us(self.lateness.all_ns),
            "in_flight_us": us(self.in_flight.at(now_ns)),
            "charged_read_ops": self.reads.charged_operations,
            "charged_write_ops": self.writes.charged_operations,
            "flush_ops": self.upkeep[Upkeep::Flush as usize],
            "trim_ops": self.upkeep[Upkeep::Trim as usize],
            "zero_ops": self.upkeep[Upkeep::Zero as usize],
            "upkeep_us": us(self.upkeep_ns),
            "limits": limits.iter().map(LimitUse::to_json).collect::<Vec<_>>(),
            "read_latency_us": self.reads.latencies.to_json(),
            "write_latency_us": self.writes.latencies.to_json(),
        })
    }
}

impl Lateness {
    fn add(&mut self, decision: &Decision, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(decision.at_ns);
        let given_ns = decision.at_ns.saturating_sub(decision.arrived_ns);
        self.all_ns += late_ns;
        if late_ns > LATE_NS.max(given_ns / LATE_PART) {
            self.requests += 1;
            self.late_ns += late_ns;
            self.longest_ns = self.longest_ns.max(late_ns);
        }
    }
}

impl LimitUse {
    fn to_json(&self) -> Value {
        let change =
            |&(at_ns, rate): &RateChange| json!({"seconds": seconds(at_ns), "per_second": rate});
        json!({
            "layer": self.layer,
            "scope": self.scope,
            "unit": self.unit,
            "per_second": self.per_second,
            "used": self.used,
            "exceeded_us": whole_us(self.exceeded_ns),
            "level": self.level,
            "changes": self.changes.iter().map(change).collect::<Vec<_>>(),
        })
    }
}

/// Return the longest time for which a limit of this layer and unit held requests back.
fn exceeded_us(limits: &[LimitUse], layer: Layer, unit: Unit) -> u64 {
    let of_kind = limits.iter().filter(|limit| (limit.layer, limit.unit) == (layer, unit));
    whole_us(of_kind.map(|limit| limit.exceeded_ns).fold(0.0, f64::max))
}

fn us(ns: u64) -> u64 {
    (ns + 500) / 1000
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a sum of waits
fn whole_us(ns: f64) -> u64 {
    us(ns.round() as u64)
}

fn seconds(ns: f64) -> f64 {
    ns / 1e9
}
