//! Credits: their drain and refill.

use pcvolume::limit::{Credits, Limit};
use proptest::prelude::*;
use serde_json::json;

use crate::simulation::{assert_close, limit, run, volume, SECOND_NS};

fn gp2(start: f64) -> serde_json::Value {
    let mut gp2 = limit("operations", 300.0);
    gp2["credits"] = json!({"burst_per_second": 3000.0, "capacity": 54_000.0, "start": start});
    json!({"limits": [gp2]})
}

#[test]
fn credits_drain_by_the_published_formula_at_every_depth() {
    // 54,000 credits last 54,000 / (3,000 - 300) = 20 s.
    for depth in [1, 16, 1024] {
        let mut volume = volume(gp2(54_000.0));
        let burst = run(&mut volume, depth, 4096, 40);
        assert_close(burst.per_second(), (20.0 * 3000.0 + 20.0 * 300.0) / 40.0, 0.01);
        let changes = &volume.account(40 * SECOND_NS).to_json()["pcvolume"]["limits"][0]["changes"];
        assert_eq!(changes[0], json!({"seconds": 0.0, "per_second": 3000.0}));
        assert_close(changes[1]["seconds"].as_f64().unwrap(), 20.0, 0.01);
        assert_eq!(changes[1]["per_second"], 300.0);
        assert_eq!(changes.as_array().unwrap().len(), 2);
    }
}

#[test]
fn without_credits_the_base_rate_is_exact() {
    let mut volume = volume(gp2(0.0));
    assert_close(run(&mut volume, 16, 4096, 30).per_second(), 300.0, 0.002);
    let limit = &volume.account(30 * SECOND_NS).to_json()["pcvolume"]["limits"][0];
    assert_eq!(limit["changes"], json!([{"seconds": 0.0, "per_second": 300.0}]));
    assert!(limit["level"].as_f64().unwrap() < 1.0);
}

#[test]
fn the_level_falls_while_requests_queue() {
    let mut volume = volume(gp2(54_000.0));
    run(&mut volume, 1024, 4096, 10);
    let level = volume.account(10 * SECOND_NS).to_json()["pcvolume"]["limits"][0]["level"].clone();
    assert_close(level.as_f64().unwrap(), 54_000.0 - 10.0 * 2700.0, 0.01);
}

#[test]
fn a_limit_used_at_about_its_base_does_not_change_its_rate_with_every_request() {
    let mut limit =
        Limit::new(100.0, Some(Credits { capacity: 1e4, level: 0.0, burst_per_second: 1000.0 }));
    for number in 0..10_000 {
        // Every other request comes 1 ms late.
        limit.admit(1e7 * f64::from(number) + f64::from(number % 2) * 1e6, 1.0);
    }
    assert_eq!(limit.changes().len(), 1);
}

#[test]
fn the_changes_of_rate_are_bounded() {
    let mut limit =
        Limit::new(1.0, Some(Credits { capacity: 1.0, level: 1.0, burst_per_second: 2.0 }));
    for number in 0..5000 {
        limit.admit(1e10 * f64::from(number), 10.0);
    }
    assert_eq!(limit.changes().len(), 1000);
}

prop_compose! {
    fn buckets()(
        base in 1.0..1e4f64,
        more in 1.01..20.0f64,
        capacity in 1.0..1e6f64,
        filled in 0.0..1.0f64,
    ) -> (f64, Credits) {
        (base, Credits { capacity, level: filled * capacity, burst_per_second: base * more })
    }
}

proptest! {
    #[test]
    fn work_of_any_size_takes_the_time_of_the_formula(
        (base, credits) in buckets(),
        costs in prop::collection::vec(0.1..1e6f64, 1..50),
    ) {
        let mut limit = Limit::new(base, Some(credits));
        for cost in &costs {
            limit.admit(0.0, *cost);
        }
        let amount: f64 = costs.iter().sum();
        let burst_seconds = credits.level / (credits.burst_per_second - base);
        let expected = if amount <= burst_seconds * credits.burst_per_second {
            amount / credits.burst_per_second
        } else {
            (amount - credits.level) / base
        };
        prop_assert!((limit.free_ns() / 1e9 / expected - 1.0).abs() < 1e-6);
    }

    #[test]
    fn an_idle_bucket_refills_at_its_base_up_to_its_capacity(
        (base, credits) in buckets(),
        idle_seconds in 0.0..1e4f64,
    ) {
        let mut limit = Limit::new(base, Some(credits));
        let burst = credits.burst_per_second;
        limit.admit(0.0, 2.0 * burst * credits.capacity / (burst - base));
        let drained_ns = limit.free_ns();
        prop_assert_eq!(limit.level(drained_ns), Some(0.0));
        let level = limit.level(drained_ns + idle_seconds * 1e9).unwrap();
        let expected = (idle_seconds * base).min(credits.capacity);
        prop_assert!((level - expected).abs() <= 1e-6 * expected.max(1.0), "{level} {expected}");
    }

    #[test]
    fn what_was_let_through_is_never_more_than_the_formula_allows(
        (base, credits) in buckets(),
        costs in prop::collection::vec(0.1..1e5f64, 1..50),
        share in 0.0..1.0f64,
    ) {
        let mut limit = Limit::new(base, Some(credits));
        for cost in &costs {
            limit.admit(0.0, *cost);
        }
        let now_ns = share * limit.free_ns();
        let burst_ns = (credits.level / (credits.burst_per_second - base) * 1e9).min(now_ns);
        let allowed = (burst_ns * credits.burst_per_second + (now_ns - burst_ns) * base) / 1e9;
        let total: f64 = costs.iter().sum();
        let used = limit.used(now_ns);
        prop_assert!((used - allowed).abs() <= 1e-6 * total, "{used} {allowed}");
        prop_assert!((limit.used(limit.free_ns()) - total).abs() <= 1e-9 * total);
    }

    #[test]
    fn the_level_stays_within_the_bucket(
        (base, credits) in buckets(),
        requests in prop::collection::vec((0.0..1e10f64, 0.1..1e5f64), 1..100),
    ) {
        let mut limit = Limit::new(base, Some(credits));
        let mut now_ns = 0.0;
        for (gap_ns, cost) in requests {
            now_ns += gap_ns;
            limit.admit(now_ns, cost);
            let level = limit.level(now_ns).unwrap();
            prop_assert!((0.0..=credits.capacity).contains(&level), "{level}");
        }
    }
}
