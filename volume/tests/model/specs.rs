//! Descriptions: what is refused, and that the model describes itself.

use pcvolume::model::Volume;
use pcvolume::spec::ModelSpec;
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::simulation::{limit, run, volume, SECOND_NS, VOLUME_BYTES};

fn refusal(spec: Value) -> String {
    match serde_json::from_value::<ModelSpec>(spec) {
        Ok(spec) => Volume::new(&spec, VOLUME_BYTES).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
    .expect("it is refused")
}

fn with_credits(burst_per_second: f64, capacity: f64, start: f64) -> Value {
    let mut limit = limit("operations", 100.0);
    limit["credits"] =
        json!({"burst_per_second": burst_per_second, "capacity": capacity, "start": start});
    json!({"limits": [limit]})
}

#[test]
fn a_limit_out_of_its_range_is_named() {
    for (spec, expected) in [
        (json!({"limits": [limit("operations", 0.0)]}), "per_second must be positive, and is 0"),
        (
            with_credits(100.0, 5.0, 1.0),
            "burst_per_second must be above per_second 100, and is 100",
        ),
        (with_credits(200.0, 0.0, 0.0), "capacity must be positive, and is 0"),
        (with_credits(200.0, 5.0, 6.0), "start must lie within 0 and the capacity 5, and is 6"),
        (json!({"path_us": -1.0}), "path_us must be 0 or more, and is -1"),
        (json!({"accounting": {"io_size_bytes": 0}}), "io_size_bytes must be positive, and is 0"),
        (
            json!({"restore": {"bytes_per_second": -1.0, "block_bytes": 4096}}),
            "bytes_per_second must be positive, and is -1",
        ),
        (
            json!({"restore": {"bytes_per_second": 1.0, "block_bytes": 1}}),
            "block_bytes must be 4096 or more, and is 1",
        ),
    ] {
        assert_eq!(refusal(spec), expected);
    }
}

#[test]
fn a_latency_that_is_no_distribution_is_named() {
    for (size_bytes, quantiles, expected) in [
        (
            0,
            json!([[0.5, 1.0]]),
            "the sizes of a latency must be positive and rise, and 0 bytes is not or does not",
        ),
        (1, json!([]), "a latency has no quantiles"),
        (
            1,
            json!([[0.5, 2.0], [0.9, 1.0]]),
            "the quantiles of a latency must be positive and not fall, and 1 us is or does",
        ),
        (
            1,
            json!([[0.5, 2.0], [0.5, 3.0]]),
            "the probabilities of a latency must rise within 0 to 1, and 0.5 does not",
        ),
    ] {
        let latency = json!([{"size_bytes": size_bytes, "quantiles": quantiles}]);
        assert_eq!(refusal(json!({"read_latency": latency})), expected);
    }
}

#[test]
fn an_event_that_is_not_complete_is_named() {
    for (event, expected) in [
        (json!({"kind": "degrade"}), "an event `degrade` needs share"),
        (
            json!({"kind": "degrade", "share": 0.0}),
            "share of an event `degrade` must be above 0 and at most 1, and is 0",
        ),
        (json!({"kind": "delay"}), "an event `delay` needs latency_us"),
        (json!({"kind": "pause", "share": 0.5}), "an event `pause` has no share"),
        (json!({"kind": "detach", "end_byte": 5}), "an event `detach` has no end_byte"),
        (
            json!({"kind": "fail", "first_byte": 5, "end_byte": 5}),
            "end_byte of an event `fail` must be above first_byte, and is 5",
        ),
        (
            json!({"kind": "pause", "from_seconds": 2, "until_seconds": 1}),
            "until_seconds of an event `pause` must be after from_seconds, and is 1",
        ),
    ] {
        assert_eq!(refusal(json!({"events": [event]})), expected);
    }
    let many = vec![json!({"kind": "pause"}); 257];
    assert_eq!(refusal(json!({"events": many})), "a volume has at most 256 events");
}

#[test]
fn an_unknown_key_is_refused_at_every_place() {
    for spec in [
        json!({"limit": []}),
        json!({"accounting": {"size": 1}}),
        json!({"events": [{"kind": "pause", "seconds": 1}]}),
        json!({"restore": {"bytes_per_second": 1.0, "block_bytes": 4096, "rate": 1}}),
        json!({"read_latency": [{"size_bytes": 1, "quantiles": [[0.5, 1.0]], "unit": "us"}]}),
    ] {
        assert!(refusal(spec).starts_with("unknown field"));
    }
}

#[test]
fn the_sizes_of_latencies_must_rise() {
    let size = |size_bytes: u64| json!({"size_bytes": size_bytes, "quantiles": [[0.5, 1.0]]});
    assert!(refusal(json!({"write_latency": [size(8192), size(4096)]})).contains("4096 bytes"));
}

#[test]
fn a_used_model_describes_the_credits_that_are_left() {
    let mut volume = volume(with_credits(200.0, 1000.0, 1000.0));
    run(&mut volume, 4, 4096, 5);
    let left = volume.describe(5 * SECOND_NS).limits[0].credits.clone().unwrap().start;
    assert!((490.0..510.0).contains(&left), "{left}");
}

prop_compose! {
    fn limits()(
        rates in prop::collection::vec((1.0..1e9f64, any::<bool>()), 0..4),
        burst in 1.1..5.0f64,
        capacity in 1.0..1e9f64,
        filled in 0.0..1.0f64,
    ) -> Value {
        let limits = rates.iter().enumerate().map(|(index, &(rate, bursts))| json!({
            "layer": (["volume", "instance"][index % 2]),
            "scope": (["both", "read", "write"][index % 3]),
            "unit": (["operations", "bytes"][index % 2]),
            "per_second": rate,
            "credits": bursts.then(|| json!({
                "burst_per_second": burst * rate,
                "capacity": capacity,
                "start": filled * capacity,
            })),
        }));
        limits.collect()
    }
}

prop_compose! {
    fn latencies()(
        sizes in prop::collection::btree_set(1u64..1 << 20, 0..3),
        us in 1.0..1e5f64,
        more in 1.0..10.0f64,
    ) -> Value {
        let sizes = sizes.iter().map(|size_bytes| json!({
            "size_bytes": size_bytes,
            "quantiles": [[0.5, us], [0.99, us * more]],
        }));
        sizes.collect()
    }
}

prop_compose! {
    fn events()(
        begins in prop::collection::vec((0.0..100.0f64, any::<bool>()), 0..4),
        share in 0.1..1.0f64,
    ) -> Value {
        let events = begins.iter().map(|&(from, ends)| {
            let mut event = json!({"kind": "degrade", "from_seconds": from, "share": share});
            if ends {
                event["until_seconds"] = json!(from + 1.5);
            }
            event
        });
        events.collect()
    }
}

prop_compose! {
    fn models()(
        limits in limits(),
        io_size_bytes in prop::option::of(1u64..1 << 20),
        merged in any::<bool>(),
        read_latency in latencies(),
        write_latency in latencies(),
        block_bytes in prop::option::of(4096u64..1 << 22),
        events in events(),
        seed in any::<u64>(),
    ) -> Value {
        json!({
            "limits": limits,
            "accounting": {"io_size_bytes": io_size_bytes, "merged": merged},
            "read_latency": read_latency,
            "write_latency": write_latency,
            "restore": block_bytes.map(|bytes| json!({
                "bytes_per_second": 2e6,
                "block_bytes": bytes,
            })),
            "events": events,
            "seed": seed,
        })
    }
}

proptest! {
    #[test]
    fn a_new_model_describes_itself_as_it_was_given(model in models()) {
        // As text, because a parser of numbers may round.
        let spec: ModelSpec = serde_json::from_str(&model.to_string()).unwrap();
        let described = Volume::new(&spec, VOLUME_BYTES).unwrap().describe(0);
        prop_assert_eq!(serde_json::to_value(described).unwrap(), model);
    }
}
