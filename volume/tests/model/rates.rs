//! Rates and latencies.

use pcvolume::request::{Direction, Request};
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::simulation::{
    assert_close, limit, offset, read, reply_ns, run, run_mixed, volume, SECOND_NS,
};

#[test]
fn operations_are_limited_to_a_hundredth_at_every_depth() {
    for depth in [1, 4, 16, 64, 1024] {
        let mut volume = volume(json!({"limits": [limit("operations", 3000.0)]}));
        assert_close(run(&mut volume, depth, 4096, 30).per_second(), 3000.0, 0.01);
    }
}

#[test]
fn bytes_are_limited_to_a_hundredth_at_every_size() {
    for length in [4096, 65536, 262_144, 1_048_576] {
        let mut volume = volume(json!({"limits": [limit("bytes", 125e6)]}));
        assert_close(run(&mut volume, 16, length, 30).bytes_per_second(), 125e6, 0.01);
    }
}

#[test]
fn below_the_limit_nothing_waits() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.0, 500.0]]}]);
    let mut volume =
        volume(json!({"limits": [limit("operations", 3000.0)], "read_latency": latency}));
    let completed = run(&mut volume, 1, 4096, 10);
    assert_close(completed.per_second(), 2000.0, 0.01);
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
fn reads_and_writes_may_have_limits_of_their_own() {
    let apart = |scope: &str| {
        let mut limit = limit("operations", 100.0);
        limit["scope"] = json!(scope);
        limit
    };
    let mut volume = volume(json!({"limits": [apart("read"), apart("write")]}));
    let write = Request { direction: Direction::Write, ..read(0, 4096) };
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), 0), 0);
    assert_eq!(reply_ns(&mut volume, &write, 0), 0);
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), 0), 10_000_000);
}

#[test]
fn reads_and_writes_share_a_limit_for_both() {
    let mut volume = volume(json!({"limits": [limit("operations", 1000.0)]}));
    let completed = run_mixed(&mut volume, 8, 30, |number| Request {
        direction: if number % 3 == 0 { Direction::Write } else { Direction::Read },
        ..read(offset(number, 4096), 4096)
    });
    assert_close(completed.per_second(), 1000.0, 0.01);
}

#[test]
fn quantiles_are_those_that_were_set() {
    let set = [(0.5, 440.0), (0.95, 720.0), (0.99, 1700.0), (0.999, 5000.0), (1.0, 9000.0)];
    let latency = json!([{"size_bytes": 4096, "quantiles": set}]);
    let mut volume = volume(json!({"read_latency": latency, "seed": 7}));
    let completed = run(&mut volume, 16, 4096, 30);
    for (p, us) in &set[..4] {
        assert_close(completed.quantile_us(*p), *us, 0.05);
    }
}

#[test]
fn between_two_sizes_the_latency_is_log_linear_and_beyond_them_constant() {
    let latency = json!([
        {"size_bytes": 4096, "quantiles": [[0.0, 100.0]]},
        {"size_bytes": 65536, "quantiles": [[0.0, 1600.0]]},
    ]);
    let mut volume = volume(json!({"read_latency": latency}));
    let mut us = |length| reply_ns(&mut volume, &read(0, length), 0) / 1000;
    assert_eq!([512, 4096, 16384, 65536, 1 << 20].map(&mut us), [100, 100, 400, 1600, 1600]);
}

#[test]
fn a_request_after_idle_time_does_not_gain_by_it() {
    let mut volume = volume(json!({"limits": [limit("operations", 100.0)]}));
    let mut at = |now_ns| reply_ns(&mut volume, &read(0, 4096), now_ns);
    let starts = [at(SECOND_NS), at(SECOND_NS), at(SECOND_NS)];
    assert_eq!(starts, [0, 10_000_000, 20_000_000].map(|ns| SECOND_NS + ns));
}

/// Limits of operations and of bytes, and a mix of two sizes.
fn mixes() -> impl Strategy<Value = (f64, f64, u64, u64)> {
    (500.0..20_000.0f64, 10e6..500e6f64, 1u64..5, 1u64..20)
}

fn two_limits(operations: f64, bytes: f64) -> Value {
    json!({"limits": [limit("operations", operations), limit("bytes", bytes)]})
}

proptest! {
    #[test]
    fn a_mix_of_sizes_reaches_the_least_of_its_limits(
        (operations, bytes, large_in, small_in) in mixes(),
    ) {
        let is_large = |number: u64| number % (large_in + small_in) < large_in;
        let length = |number: u64| if is_large(number) { 1 << 18 } else { 4096 };
        let mut volume = volume(two_limits(operations, bytes));
        let completed = run_mixed(&mut volume, 64, 10, |number| {
            read(offset(number, 1 << 18), length(number))
        });
        let by_operations = completed.per_second() / operations;
        let by_bytes = completed.bytes_per_second() / bytes;
        // Where both bind about equally, either waits now and then for the other.
        let least = if (by_operations / by_bytes).ln().abs() < 0.2 { 0.95 } else { 0.99 };
        let reached = by_operations.max(by_bytes);
        prop_assert!((least..1.01).contains(&reached), "{by_operations} {by_bytes}");
    }

    #[test]
    fn no_two_requests_start_closer_than_their_limit(
        gaps in prop::collection::vec(0u64..3_000_000, 2..300),
        per_second in 10.0..100_000.0f64,
    ) {
        let mut volume = volume(json!({"limits": [limit("bytes", per_second * 4096.0)]}));
        let mut now_ns = 0;
        let mut earliest_ns = 0.0;
        for gap in gaps {
            now_ns += gap;
            let start_ns = reply_ns(&mut volume, &read(0, 4096), now_ns) as f64;
            prop_assert!(start_ns >= earliest_ns - 1.0 && start_ns >= now_ns as f64);
            earliest_ns = start_ns + 1e9 / per_second;
        }
    }

    #[test]
    fn no_request_completes_before_it_arrives_and_equal_seeds_agree(
        gaps in prop::collection::vec(0u64..5_000_000, 1..200),
        seed in any::<u64>(),
        per_second in 10.0..100_000.0f64,
    ) {
        let latency = json!([{"size_bytes": 4096, "quantiles": [[0.5, 100.0], [1.0, 10_000.0]]}]);
        let limits = json!([limit("operations", per_second)]);
        let spec = json!({"limits": limits, "read_latency": latency, "seed": seed});
        let (mut one, mut other) = (volume(spec.clone()), volume(spec));
        let mut now_ns = 0;
        for gap in gaps {
            now_ns += gap;
            let at_ns = reply_ns(&mut one, &read(0, 4096), now_ns);
            prop_assert_eq!(at_ns, reply_ns(&mut other, &read(0, 4096), now_ns));
            prop_assert!(at_ns >= now_ns + 100_000);
        }
    }
}
