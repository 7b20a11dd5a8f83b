//! Prints how many requests a second the model decides on one core, as JSON.
//!
//! The volume has everything at once: four limits, two of them with credits, merged I/Os, latencies
//! of two sizes, a restore and events that are over. Sixteen requests are in flight.

use std::collections::VecDeque;
use std::time::Instant;

use pcvolume::model::Volume;
use pcvolume::request::{Decision, Direction, Request};
use pcvolume::spec::ModelSpec;
use serde_json::{json, Value};

const REQUESTS: u64 = 2_000_000;
const DEPTH: usize = 16;
const VOLUME_BYTES: u64 = 1 << 40;

fn model() -> Value {
    let limit = |layer: &str, unit: &str, per_second: f64| {
        let credits = (layer == "instance").then(|| {
            json!({"burst_per_second": 2.0 * per_second, "capacity": 60.0 * per_second, "start": 0})
        });
        json!({
            "layer": layer, "scope": "both", "unit": unit,
            "per_second": per_second, "credits": credits,
        })
    };
    let latency = json!([
        {"size_bytes": 4096, "quantiles": [[0.5, 440], [0.95, 720], [0.999, 5000]]},
        {"size_bytes": 262_144, "quantiles": [[0.5, 900], [0.95, 1500], [0.999, 9000]]},
    ]);
    let events: Vec<_> = ["pause", "degrade", "delay", "fail"]
        .into_iter()
        .map(|kind| match kind {
            "degrade" => json!({"kind": kind, "until_seconds": 0.001, "share": 0.5}),
            "delay" => json!({"kind": kind, "until_seconds": 0.001, "latency_us": 10}),
            _ => json!({"kind": kind, "until_seconds": 0.001}),
        })
        .collect();
    json!({
        "limits": [
            limit("volume", "operations", 3000.0), limit("volume", "bytes", 125e6),
            limit("instance", "operations", 20_000.0), limit("instance", "bytes", 600e6),
        ],
        "accounting": {"io_size_bytes": 262_144, "merged": true},
        "read_latency": latency, "write_latency": latency,
        "restore": {"bytes_per_second": 1e9, "block_bytes": 524_288},
        "events": events,
        "seed": 7,
    })
}

fn request(number: u64) -> Request {
    let length = if number % 8 == 0 { 65536 } else { 4096 };
    let direction = if number % 3 == 0 { Direction::Write } else { Direction::Read };
    let block = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (VOLUME_BYTES / 65536);
    Request { direction, offset: block * 65536, length }
}

fn main() {
    let spec: ModelSpec = serde_json::from_value(model()).expect("the model is complete");
    let mut volume = Volume::new(&spec, VOLUME_BYTES).expect("its numbers are in their ranges");
    let mut in_flight: VecDeque<(Request, Decision)> = VecDeque::new();
    let mut now_ns = 0;
    let began = Instant::now();
    for number in 0..REQUESTS {
        if in_flight.len() == DEPTH {
            let (request, decision) = in_flight.pop_front().expect("it is full");
            now_ns = decision.at_ns.max(now_ns);
            volume.complete(&request, &decision, now_ns, None);
        }
        let request = request(number);
        in_flight.push_back((request, volume.arrive(&request, now_ns)));
    }
    let per_second = REQUESTS as f64 / began.elapsed().as_secs_f64();
    let account = volume.account(now_ns).to_json();
    println!(
        "{}",
        json!({"requests_per_second": per_second, "failed": account["pcvolume"]["failed_ops"]})
    );
}
