//! A program that keeps a number of requests in flight, in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pcvolume::model::Volume;
use pcvolume::request::{Decision, Direction, Request};
use pcvolume::spec::ModelSpec;
use serde_json::{json, Value};

pub const VOLUME_BYTES: u64 = 1 << 40;
pub const SECOND_NS: u64 = 1_000_000_000;

/// The requests that completed in time.
pub struct Completed {
    pub requests: Vec<Request>,
    pub latencies_us: Vec<f64>,
    seconds: u64,
}

impl Completed {
    pub fn per_second(&self) -> f64 {
        self.requests.len() as f64 / self.seconds as f64
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.requests.iter().map(|request| request.length as f64).sum::<f64>() / self.seconds as f64
    }

    pub fn quantile_us(&self, p: f64) -> f64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_by(f64::total_cmp);
        let below = sorted.len() as f64 * p;
        sorted.into_iter().enumerate().find(|&(index, _)| index as f64 >= below - 1.0).unwrap().1
    }

    pub fn mean_us(&self) -> f64 {
        self.latencies_us.iter().sum::<f64>() / self.latencies_us.len() as f64
    }
}

pub fn volume(spec: Value) -> Volume {
    let spec: ModelSpec = serde_json::from_value(spec).unwrap();
    Volume::new(&spec, VOLUME_BYTES).unwrap()
}

pub fn limit(unit: &str, per_second: f64) -> Value {
    json!({"layer": "volume", "scope": "both", "unit": unit, "per_second": per_second})
}

pub fn read(offset: u64, length: u64) -> Request {
    Request { direction: Direction::Read, offset, length }
}

/// Let one request arrive, and return the time of its reply.
pub fn reply_ns(volume: &mut Volume, request: &Request, now_ns: u64) -> u64 {
    let decision = volume.arrive(request, now_ns);
    assert!(!decision.fails);
    decision.at_ns
}

/// Return the `number`-th random offset of requests of this length.
pub fn offset(number: u64, length: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (VOLUME_BYTES / length) * length
}

/// Keep `depth` random reads of `length` bytes in flight for some simulated seconds.
pub fn run(volume: &mut Volume, depth: usize, length: u64, seconds: u64) -> Completed {
    run_mixed(volume, depth, seconds, |number| read(offset(number, length), length))
}

/// Keep `depth` requests in flight, given by their number, for some simulated seconds.
pub fn run_mixed(
    volume: &mut Volume,
    depth: usize,
    seconds: u64,
    request: impl Fn(u64) -> Request,
) -> Completed {
    let mut replies: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut in_flight: Vec<(Request, Decision)> = Vec::new();
    let mut completed = Completed { requests: Vec::new(), latencies_us: Vec::new(), seconds };
    let mut now_ns = 0;
    loop {
        while replies.len() < depth {
            let number = in_flight.len() as u64;
            let decision = volume.arrive(&request(number), now_ns);
            in_flight.push((request(number), decision));
            replies.push(Reverse((decision.at_ns, number)));
        }
        let Reverse((at_ns, number)) = replies.pop().unwrap();
        if at_ns >= seconds * SECOND_NS {
            return completed;
        }
        now_ns = at_ns;
        let (request, decision) = in_flight[usize::try_from(number).unwrap()];
        volume.complete(&request, &decision, now_ns, None);
        if !decision.fails {
            completed.requests.push(request);
            completed.latencies_us.push((at_ns - decision.arrived_ns) as f64 / 1000.0);
        }
    }
}

pub fn assert_close(measured: f64, expected: f64, share: f64) {
    assert!((measured / expected - 1.0).abs() <= share, "{measured} is not {expected}");
}
