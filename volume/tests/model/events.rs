//! Events, and the first touch of restored blocks.

use pcvolume::request::NEVER_NS;
use proptest::prelude::*;
use serde_json::json;

use crate::simulation::{assert_close, limit, read, reply_ns, run, volume, SECOND_NS};

#[test]
fn events_pause_delay_fail_and_detach() {
    let mut volume = volume(json!({"events": [
        {"kind": "pause", "from_seconds": 1, "until_seconds": 2},
        {"kind": "fail", "from_seconds": 3, "until_seconds": 4, "share": 1.0, "first_byte": 8192},
        {"kind": "delay", "from_seconds": 5, "until_seconds": 6, "share": 1.0, "latency_us": 250.0},
        {"kind": "detach", "from_seconds": 7},
    ]}));
    let mut at = |seconds: u64, offset: u64| {
        let decision = volume.arrive(&read(offset, 4096), seconds * SECOND_NS);
        (decision.at_ns, decision.fails)
    };
    assert_eq!(at(0, 0), (0, false));
    assert_eq!(at(1, 0), (2 * SECOND_NS, false));
    assert_eq!(at(3, 0), (3 * SECOND_NS, false));
    assert_eq!(at(3, 8192), (3 * SECOND_NS, true));
    assert_eq!(at(3, 4097), (3 * SECOND_NS, true));
    assert_eq!(at(5, 0), (5 * SECOND_NS + 250_000, false));
    assert_eq!(at(7, 0), (7 * SECOND_NS, true));
}

#[test]
fn an_event_without_a_share_concerns_every_request() {
    let mut volume = volume(json!({"events": [{"kind": "fail"}]}));
    assert!((0..100).all(|_| volume.arrive(&read(0, 4096), 0).fails));
}

#[test]
fn a_share_of_the_requests_fails() {
    let mut volume = volume(json!({"events": [{"kind": "fail", "share": 0.1}], "seed": 3}));
    let failed = (0..10_000).filter(|_| volume.arrive(&read(0, 4096), 0).fails).count();
    assert_close(failed as f64, 1000.0, 0.1);
}

#[test]
fn a_degraded_volume_delivers_its_share() {
    let events = json!([{"kind": "degrade", "share": 0.1}]);
    let mut volume = volume(json!({"limits": [limit("operations", 3000.0)], "events": events}));
    assert_close(run(&mut volume, 16, 4096, 30).per_second(), 300.0, 0.01);
}

#[test]
fn a_degraded_volume_without_credits_delivers_its_share_of_the_base() {
    let mut limit = limit("operations", 300.0);
    limit["credits"] = json!({"burst_per_second": 3000.0, "capacity": 54_000.0, "start": 0.0});
    let events = json!([{"kind": "degrade", "share": 0.5}]);
    let mut volume = volume(json!({"limits": [limit], "events": events}));
    assert_close(run(&mut volume, 16, 4096, 30).per_second(), 150.0, 0.01);
}

#[test]
fn the_limits_of_the_instance_are_not_degraded() {
    let mut limit = limit("operations", 3000.0);
    limit["layer"] = json!("instance");
    let mut volume =
        volume(json!({"limits": [limit], "events": [{"kind": "degrade", "share": 0.1}]}));
    assert_close(run(&mut volume, 16, 4096, 10).per_second(), 3000.0, 0.01);
}

#[test]
fn requests_that_queue_when_a_degradation_ends_do_not_keep_its_rate() {
    let events = json!([{"kind": "degrade", "until_seconds": 10, "share": 0.1}]);
    let mut volume = volume(json!({"limits": [limit("operations", 3000.0)], "events": events}));
    let completed = run(&mut volume, 1024, 4096, 20);
    assert_close(completed.per_second(), (10.0 * 300.0 + 10.0 * 3000.0) / 20.0, 0.01);
}

#[test]
fn a_pause_costs_exactly_its_length() {
    let events = json!([{"kind": "pause", "from_seconds": 10, "until_seconds": 15}]);
    let mut volume = volume(json!({"limits": [limit("operations", 1000.0)], "events": events}));
    assert_close(run(&mut volume, 64, 4096, 30).per_second(), 1000.0 * 25.0 / 30.0, 0.01);
}

#[test]
fn an_endless_pause_never_replies_and_no_other_time_is_affected() {
    let events = json!([{"kind": "pause", "from_seconds": 1}]);
    let mut volume = volume(json!({"limits": [limit("operations", 1.0)], "events": events}));
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), 0), 0);
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), SECOND_NS), NEVER_NS);
    assert_eq!(volume.decide_upkeep(SECOND_NS).at_ns, NEVER_NS);
}

#[test]
fn an_event_by_command_begins_then() {
    let mut volume = volume(json!({}));
    let event: pcvolume::event::Event =
        serde_json::from_value(json!({"kind": "pause", "until_seconds": 5})).unwrap();
    volume.add_event(event.later_by(60.0)).unwrap();
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), 59 * SECOND_NS), 59 * SECOND_NS);
    assert_eq!(reply_ns(&mut volume, &read(0, 4096), 61 * SECOND_NS), 65 * SECOND_NS);
}

#[test]
fn a_restored_block_is_slow_once() {
    let restore = json!({"bytes_per_second": 1_048_576.0, "block_bytes": 524_288});
    let mut volume = volume(json!({"restore": restore}));
    let half = SECOND_NS / 2;
    assert_eq!(reply_ns(&mut volume, &read(4096, 4096), 0), half);
    assert_eq!(reply_ns(&mut volume, &read(4096, 4096), half), half);
}

#[test]
fn a_restore_delivers_its_rate_at_every_depth() {
    let restore = json!({"bytes_per_second": 2e6, "block_bytes": 524_288});
    for depth in [1, 4, 64] {
        let mut volume =
            volume(json!({"limits": [limit("operations", 3000.0)], "restore": restore}));
        let completed = run(&mut volume, depth, 4096, 60);
        assert_close(completed.per_second() * 524_288.0, 2e6, 0.01);
    }
}

proptest! {
    #[test]
    fn no_request_starts_in_a_pause(
        pauses in prop::collection::vec((0.0..10.0f64, 0.001..3.0f64), 0..6),
        gaps in prop::collection::vec(0u64..200_000_000, 1..200),
        per_second in 5.0..1000.0f64,
        share in 0.05..1.0f64,
    ) {
        let mut events: Vec<_> = pauses
            .iter()
            .map(|&(from, long)| (from, from + long))
            .map(|(from, until)| {
                json!({"kind": "pause", "from_seconds": from, "until_seconds": until})
            })
            .collect();
        events.push(json!({"kind": "degrade", "until_seconds": 6, "share": share}));
        let limits = json!([limit("operations", per_second)]);
        let mut volume = volume(json!({"limits": limits, "events": events}));
        let mut now_ns = 0;
        for gap in gaps {
            now_ns += gap;
            let start_ns = reply_ns(&mut volume, &read(0, 4096), now_ns);
            prop_assert!(start_ns >= now_ns);
            for &(from, long) in &pauses {
                let inside = (start_ns as f64 / 1e9 - from) / long;
                prop_assert!(!(1e-6..1.0 - 1e-6).contains(&inside), "{inside}");
            }
        }
    }
}
