//! The model under a program that keeps a number of requests in flight, in simulated time.

use std::collections::BinaryHeap;
use std::cmp::Reverse;

use pcvolume::model::Volume;
use pcvolume::request::{Direction, Outcome, Request};
use pcvolume::spec::VolumeSpec;
use proptest::prelude::*;
use serde_json::{json, Value};

const VOLUME_BYTES: u64 = 1 << 40;
const SECOND_NS: u64 = 1_000_000_000;

/// The completed requests of a closed loop.
struct Completed {
    per_second: f64,
    bytes_per_second: f64,
    latencies_us: Vec<f64>,
}

impl Completed {
    fn quantile_us(&self, p: f64) -> f64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * p).round() as usize]
    }

    fn mean_us(&self) -> f64 {
        self.latencies_us.iter().sum::<f64>() / self.latencies_us.len() as f64
    }
}

fn volume(mut spec: Value) -> Volume {
    spec["file"] = json!("unused");
    let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
    Volume::new(&spec, VOLUME_BYTES).unwrap()
}

fn limit(unit: &str, per_second: f64) -> Value {
    json!({"layer": "volume", "scope": "both", "unit": unit, "per_second": per_second})
}

/// Keep `depth` random reads of `length` bytes in flight for some simulated seconds.
fn run(volume: &mut Volume, depth: usize, length: u64, seconds: u64) -> Completed {
    let mut ends: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let mut latencies_us = Vec::new();
    let mut number = 0u64;
    while let Some(Reverse(now_ns)) = ends.pop() {
        if now_ns >= seconds * SECOND_NS {
            continue;
        }
        number += 1;
        let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (VOLUME_BYTES / length) * length;
        let request = Request { direction: Direction::Read, offset, length };
        let Outcome::Completes { at_ns } = volume.arrive(&request, now_ns) else { panic!("failed") };
        if at_ns <= seconds * SECOND_NS {
            latencies_us.push((at_ns - now_ns) as f64 / 1000.0);
        }
        ends.push(Reverse(at_ns));
    }
    let per_second = latencies_us.len() as f64 / seconds as f64;
    Completed { per_second, bytes_per_second: per_second * length as f64, latencies_us }
}

fn assert_close(measured: f64, expected: f64, share: f64) {
    assert!((measured / expected - 1.0).abs() <= share, "{measured} is not {expected}");
}

#[test]
fn operations_are_limited_to_a_hundredth_at_every_depth() {
    for depth in [1, 4, 16, 64, 1024] {
        let mut volume = volume(json!({"limits": [limit("operations", 3000.0)]}));
        assert_close(run(&mut volume, depth, 4096, 30).per_second, 3000.0, 0.01);
    }
}

#[test]
fn bytes_are_limited_to_a_hundredth_at_every_size() {
    for length in [4096, 65536, 262_144, 1_048_576] {
        let mut volume = volume(json!({"limits": [limit("bytes", 125e6)]}));
        assert_close(run(&mut volume, 16, length, 30).bytes_per_second, 125e6, 0.01);
    }
}

#[test]
fn below_the_limit_nothing_waits() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.0, 500.0], [1.0, 500.0]]}]);
    let mut volume =
        volume(json!({"limits": [limit("operations", 3000.0)], "read_latency": latency}));
    let completed = run(&mut volume, 1, 4096, 10);
    assert_close(completed.per_second, 2000.0, 0.01);
    assert_close(completed.quantile_us(0.99), 500.0, 0.001);
}

#[test]
fn at_the_limit_littles_law_gives_the_latency_and_the_queue_is_smooth() {
    let mut volume = volume(json!({"limits": [limit("operations", 3000.0)]}));
    let completed = run(&mut volume, 1024, 4096, 30);
    assert_close(completed.mean_us(), 1024.0 / 3000.0 * 1e6, 0.02);
    assert_close(completed.quantile_us(0.99), completed.quantile_us(0.5), 0.02);
}

#[test]
fn the_least_of_several_limits_binds_and_alone_is_exceeded() {
    let instance =
        json!({"layer": "instance", "scope": "both", "unit": "bytes", "per_second": 50e6});
    let mut volume = volume(json!({"limits": [limit("bytes", 125e6), instance]}));
    assert_close(run(&mut volume, 8, 65536, 30).bytes_per_second, 50e6, 0.01);
    let account = volume.account(30 * SECOND_NS);
    let volume_us = account["ebs_volume_performance_exceeded_tp"].as_f64().unwrap();
    assert!(volume_us < 0.001 * 30e6, "only the first requests exceed it: {volume_us} us");
    let exceeded_us = account["ec2_instance_ebs_performance_exceeded_tp"].as_f64().unwrap();
    assert_close(exceeded_us, 30e6, 0.01);
}

#[test]
fn reads_and_writes_may_have_limits_of_their_own() {
    let apart = |scope: &str| json!({"layer": "volume", "scope": scope, "unit": "operations", "per_second": 100.0});
    let mut volume = volume(json!({"limits": [apart("read"), apart("write")]}));
    let arrive = |volume: &mut Volume, direction| {
        volume.arrive(&Request { direction, offset: 0, length: 4096 }, 0)
    };
    assert_eq!(arrive(&mut volume, Direction::Read), Outcome::Completes { at_ns: 0 });
    assert_eq!(arrive(&mut volume, Direction::Write), Outcome::Completes { at_ns: 0 });
    assert_eq!(arrive(&mut volume, Direction::Read), Outcome::Completes { at_ns: 10_000_000 });
}

#[test]
fn credits_drain_and_refill_by_the_published_formula() {
    let credits = json!({"burst_per_second": 3000.0, "capacity": 54_000.0, "start": 54_000.0});
    let mut gp2 = limit("operations", 300.0);
    gp2["credits"] = credits;
    let mut volume = volume(json!({"limits": [gp2]}));
    let burst = run(&mut volume, 16, 4096, 40);
    // 54,000 credits last 54,000 / (3,000 - 300) = 20 s.
    let expected = (20.0 * 3000.0 + 20.0 * 300.0) / 40.0;
    assert_close(burst.per_second, expected, 0.01);
}

#[test]
fn quantiles_are_those_that_were_set() {
    let points = json!([[0.5, 440.0], [0.95, 720.0], [0.99, 1700.0], [0.999, 5000.0], [1.0, 9000.0]]);
    let latency = json!([{"size_bytes": 4096, "quantiles": points}]);
    let mut volume = volume(json!({"read_latency": latency, "seed": 7}));
    let completed = run(&mut volume, 16, 4096, 30);
    for (p, us) in [(0.5, 440.0), (0.95, 720.0), (0.99, 1700.0), (0.999, 5000.0)] {
        assert_close(completed.quantile_us(p), us, 0.05);
    }
}

#[test]
fn a_dilated_volume_is_slower_by_the_factor_in_everything() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.0, 500.0], [1.0, 500.0]]}]);
    let spec = |dilation: f64| json!({"limits": [limit("operations", 1000.0)], "read_latency": latency, "dilation": dilation});
    let (plain, dilated) =
        (run(&mut volume(spec(1.0)), 4, 4096, 10), run(&mut volume(spec(10.0)), 4, 4096, 100));
    assert_close(dilated.per_second, plain.per_second / 10.0, 0.01);
    assert_close(dilated.mean_us(), plain.mean_us() * 10.0, 0.01);
}

#[test]
fn large_requests_count_as_several_and_adjacent_ones_as_few() {
    let accounting = json!({"io_size_bytes": 262_144, "merged": true});
    let mut volume = volume(json!({"limits": [limit("operations", 100.0)], "accounting": accounting}));
    let mut arrive = |offset: u64, length: u64| {
        volume.arrive(&Request { direction: Direction::Read, offset, length }, 0);
    };
    for page in 0..64 {
        arrive(page * 4096, 4096);
    }
    arrive(1 << 30, 1 << 20);
    let account = volume.account(0);
    assert_eq!(account["total_read_ops"], 1 + 4);
}

#[test]
fn a_restored_block_is_slow_once() {
    let restore = json!({"bytes_per_second": 1_048_576.0, "block_bytes": 524_288});
    let mut volume = volume(json!({"restore": restore}));
    let request = Request { direction: Direction::Read, offset: 4096, length: 4096 };
    let half = SECOND_NS / 2;
    assert_eq!(volume.arrive(&request, 0), Outcome::Completes { at_ns: half });
    assert_eq!(volume.arrive(&request, half), Outcome::Completes { at_ns: half });
}

#[test]
fn events_pause_degrade_delay_fail_and_detach() {
    let events = json!([
        {"kind": "pause", "period": {"from_seconds": 1, "until_seconds": 2}},
        {"kind": "fail", "period": {"from_seconds": 3, "until_seconds": 4}, "share": 1.0, "first_byte": 8192},
        {"kind": "delay", "period": {"from_seconds": 5, "until_seconds": 6}, "share": 1.0, "microseconds": 250.0},
        {"kind": "detach", "at_seconds": 7},
    ]);
    let mut volume = volume(json!({"events": events}));
    let mut at = |seconds: u64, offset: u64| {
        volume.arrive(&Request { direction: Direction::Read, offset, length: 4096 }, seconds * SECOND_NS)
    };
    assert_eq!(at(0, 0), Outcome::Completes { at_ns: 0 });
    assert_eq!(at(1, 0), Outcome::Completes { at_ns: 2 * SECOND_NS });
    assert_eq!(at(3, 0), Outcome::Completes { at_ns: 3 * SECOND_NS });
    assert_eq!(at(3, 8192), Outcome::Fails { at_ns: 3 * SECOND_NS });
    assert_eq!(at(5, 0), Outcome::Completes { at_ns: 5 * SECOND_NS + 250_000 });
    assert_eq!(at(7, 0), Outcome::Fails { at_ns: 7 * SECOND_NS });
}

#[test]
fn a_degraded_volume_delivers_its_share() {
    let events = json!([{"kind": "degrade", "period": {"from_seconds": 0}, "share": 0.1}]);
    let mut volume = volume(json!({"limits": [limit("operations", 3000.0)], "events": events}));
    assert_close(run(&mut volume, 16, 4096, 30).per_second, 300.0, 0.01);
}

proptest! {
    #[test]
    fn no_request_completes_before_it_arrives_and_equal_seeds_agree(
        gaps in prop::collection::vec(0u64..5_000_000, 1..200),
        seed in any::<u64>(),
        per_second in 10.0..100_000.0f64,
    ) {
        let latency = json!([{"size_bytes": 4096, "quantiles": [[0.5, 100.0], [1.0, 10_000.0]]}]);
        let spec = json!({"limits": [limit("operations", per_second)], "read_latency": latency, "seed": seed});
        let (mut one, mut other) = (volume(spec.clone()), volume(spec));
        let mut now_ns = 0;
        for gap in gaps {
            now_ns += gap;
            let request = Request { direction: Direction::Read, offset: 0, length: 4096 };
            let outcome = one.arrive(&request, now_ns);
            prop_assert_eq!(outcome, other.arrive(&request, now_ns));
            let Outcome::Completes { at_ns } = outcome else { panic!("failed") };
            prop_assert!(at_ns >= now_ns + 100_000);
        }
    }
}
