//! The account.

use pcvolume::account::Upkeep;
use pcvolume::request::{Decision, Direction, Request};
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::simulation::{
    assert_close, limit, offset, read, reply_ns, run, run_mixed, volume, SECOND_NS,
};

fn us(account: &Value, key: &str) -> f64 {
    account[key].as_f64().unwrap()
}

#[test]
fn the_least_of_several_limits_binds_and_alone_is_exceeded() {
    let instance =
        json!({"layer": "instance", "scope": "both", "unit": "bytes", "per_second": 50e6});
    let mut volume = volume(json!({"limits": [limit("bytes", 125e6), instance]}));
    assert_close(run(&mut volume, 8, 65536, 30).bytes_per_second(), 50e6, 0.01);
    let account = volume.account(30 * SECOND_NS).to_json();
    assert_eq!(account["ebs_volume_performance_exceeded_tp"], 0);
    assert_close(us(&account, "ec2_instance_ebs_performance_exceeded_tp"), 30e6, 0.01);
}

#[test]
fn limits_that_bind_by_turns_share_the_time() {
    // Small requests take 1 ms of the operations, large ones 20 ms of the bytes.
    let mut volume = volume(json!({"limits": [limit("operations", 1000.0), limit("bytes", 50e6)]}));
    run_mixed(&mut volume, 64, 30, |number| {
        let is_large = number % 220 >= 200;
        read(offset(number, 1 << 20), if is_large { 1_000_000 } else { 512 })
    });
    let account = volume.account(30 * SECOND_NS).to_json();
    let by_operations = us(&account, "ebs_volume_performance_exceeded_iops");
    let by_bytes = us(&account, "ebs_volume_performance_exceeded_tp");
    assert!(by_operations.min(by_bytes) > 5e6, "{by_operations} and {by_bytes}");
    assert!(by_operations + by_bytes <= 30e6, "{by_operations} and {by_bytes}");
}

#[test]
fn below_every_limit_only_the_first_requests_wait_for_each_other() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.0, 1000.0]]}]);
    let limits = json!([limit("operations", 3000.0), limit("bytes", 125e6)]);
    let mut volume = volume(json!({"limits": limits, "read_latency": latency}));
    run(&mut volume, 2, 4096, 10);
    let account = volume.account(10 * SECOND_NS).to_json();
    let exceeded_us = |index: usize| account["pcvolume"]["limits"][index]["exceeded_us"].clone();
    assert_eq!([exceeded_us(0), exceeded_us(1)], [333, 0]);
}

#[test]
fn large_requests_count_as_several_and_adjacent_ones_as_few() {
    let accounting = json!({"io_size_bytes": 262_144, "merged": true});
    let mut volume =
        volume(json!({"limits": [limit("operations", 100.0)], "accounting": accounting}));
    for page in 0..64 {
        volume.arrive(&read(page * 4096, 4096), 0);
    }
    volume.arrive(&read(1 << 30, 1 << 20), 0);
    let account = volume.account(SECOND_NS).to_json();
    assert_eq!(account["pcvolume"]["charged_read_ops"], 1 + 4);
    assert_eq!(account["pcvolume"]["limits"][0]["used"], 5.0);
    assert_eq!(account["volume_queue_length"], 65);
}

#[test]
fn the_mean_number_in_flight_is_the_depth() {
    let mut volume = volume(json!({"limits": [limit("operations", 1000.0)]}));
    run(&mut volume, 32, 4096, 10);
    let account = volume.account(10 * SECOND_NS).to_json();
    assert_close(us(&account["pcvolume"], "in_flight_us"), 32.0 * 10e6, 0.001);
    assert_eq!(account["volume_queue_length"], 32);
}

#[test]
fn quantiles_can_be_read_from_the_histogram() {
    let set = [(0.5, 440.0), (0.95, 720.0), (0.99, 1700.0), (0.999, 5000.0), (1.0, 9000.0)];
    let latency = json!([{"size_bytes": 4096, "quantiles": set}]);
    let mut volume = volume(json!({"read_latency": latency, "seed": 7}));
    run(&mut volume, 16, 4096, 30);
    let account = volume.account(30 * SECOND_NS).to_json();
    let bins = account["pcvolume"]["read_latency_us"].as_array().unwrap().clone();
    let total: u64 = bins.iter().map(|bin| bin[1].as_u64().unwrap()).sum();
    assert_eq!(account["total_read_ops"], total);
    for (p, us) in &set[..4] {
        let mut seen = 0;
        let reaches = |bin: &&Value| {
            seen += bin[1].as_u64().unwrap();
            seen as f64 >= p * total as f64
        };
        let upper_us = bins.iter().find(reaches).unwrap()[0].as_f64().unwrap();
        assert_close(upper_us, *us, 0.05);
    }
}

#[test]
fn late_replies_failures_and_upkeep_are_counted() {
    let mut volume = volume(json!({"events": [{"kind": "fail", "first_byte": 1_000_000}]}));
    let (near, far) = (read(0, 4096), read(1 << 30, 4096));
    for late_us in [20, 300, 700] {
        let decision = volume.arrive(&near, 0);
        volume.complete(&near, &decision, late_us * 1000, None);
    }
    let decision = volume.arrive(&far, 0);
    volume.complete(&far, &decision, 0, None);
    let decision = volume.arrive(&near, 0);
    volume.complete(&near, &decision, 0, Some("no space".into()));
    let upkeep = volume.decide_upkeep(0);
    volume.complete_upkeep(Upkeep::Flush, &upkeep, 5000, None);
    let account = volume.account(0).to_json();
    let own = &account["pcvolume"];
    let keys =
        ["failed_ops", "late_ops", "late_us", "late_max_us", "delay_us", "flush_ops", "upkeep_us"];
    assert_eq!(keys.map(|key| own[key].as_u64().unwrap()), [2, 2, 1000, 700, 1020, 1, 5]);
    assert_eq!(own["last_error"], "no space");
    assert_eq!(
        (&account["total_read_ops"], &account["total_read_time"]),
        (&json!(3), &json!(1020))
    );
    assert_eq!(account["volume_queue_length"], 0);
}

#[test]
fn the_path_is_part_of_a_latency_and_not_of_a_limit() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.5, 500.0]]}]);
    let limits = [crate::simulation::limit("operations", 100.0)];
    let mut volume = volume(json!({"read_latency": latency, "limits": limits, "path_us": 60.0}));
    let due_us = [0, 0, 0].map(|now| volume.arrive(&read(0, 4096), now).at_ns / 1000);
    assert_eq!(due_us, [440, 10_440, 20_440], "500 us less the path, and 100 a second");
    let decision = volume.arrive(&read(0, 4096), SECOND_NS);
    volume.complete(&read(0, 4096), &decision, decision.at_ns, None);
    let account = volume.account(2 * SECOND_NS).to_json();
    assert_eq!(account["total_read_time"], 500);
    assert_eq!(account["pcvolume"]["delay_us"], 0);
}

#[test]
fn a_path_that_takes_longer_than_the_latency_makes_replies_late() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.5, 50.0]]}]);
    let mut volume = volume(json!({"read_latency": latency, "path_us": 200.0}));
    let decision = volume.arrive(&read(0, 4096), SECOND_NS);
    assert!(decision.at_ns < SECOND_NS);
    volume.complete(&read(0, 4096), &decision, SECOND_NS, None);
    assert_eq!(volume.account(SECOND_NS).to_json()["pcvolume"]["late_ops"], 1);
}

#[test]
fn a_reply_may_be_late_by_a_twentieth_of_its_latency() {
    let latency = json!([{"size_bytes": 4096, "quantiles": [[0.5, 4000.0]]}]);
    let mut volume = volume(json!({"read_latency": latency}));
    for late_us in [150, 250] {
        let decision = volume.arrive(&read(0, 4096), SECOND_NS);
        volume.complete(&read(0, 4096), &decision, decision.at_ns + late_us * 1000, None);
    }
    assert_eq!(volume.account(SECOND_NS).to_json()["pcvolume"]["late_ops"], 1);
}

#[test]
fn reads_and_writes_are_counted_apart() {
    let mut volume = volume(json!({}));
    let write = Request { direction: Direction::Write, ..read(0, 8192) };
    for request in [read(0, 4096), write, write] {
        let decision = volume.arrive(&request, 0);
        volume.complete(&request, &decision, 1000, None);
    }
    let account = volume.account(SECOND_NS).to_json();
    let keys = [
        "total_read_ops",
        "total_write_ops",
        "total_read_bytes",
        "total_write_bytes",
        "total_write_time",
    ];
    assert_eq!(keys.map(|key| account[key].as_u64().unwrap()), [1, 2, 4096, 16384, 2]);
    assert_eq!(account["pcvolume"]["seconds"], 1.0);
}

proptest! {
    #[test]
    fn the_time_in_flight_is_that_of_all_requests(
        requests in prop::collection::vec((0u64..1000, 1u64..5000), 1..100),
    ) {
        let mut volume = volume(json!({}));
        let mut steps: Vec<(u64, Option<Decision>)> = Vec::new();
        let mut now_us = 0;
        for (gap_us, long_us) in &requests {
            now_us += gap_us;
            let decision = Decision { arrived_ns: now_us * 1000, at_ns: 0, fails: false };
            steps.push((now_us, None));
            steps.push((now_us + long_us, Some(decision)));
        }
        steps.sort_by_key(|(at_us, _)| *at_us);
        let request = read(0, 4096);
        for (at_us, decision) in steps {
            match decision {
                None => assert!(reply_ns(&mut volume, &request, at_us * 1000) == at_us * 1000),
                Some(decision) => volume.complete(&request, &decision, at_us * 1000, None),
            }
        }
        let account = volume.account(SECOND_NS).to_json();
        let expected: u64 = requests.iter().map(|(_, long_us)| long_us).sum();
        prop_assert_eq!(&account["pcvolume"]["in_flight_us"], expected);
        prop_assert_eq!(&account["total_read_time"], expected);
    }
}
