//! Tests of the orders in which `pcread` visits the bytes, and of their report.

mod common;

use common::{Dataset, SIZE_BYTES};

#[test]
fn the_articles_order_is_counted_as_it_is() {
    let data = Dataset::new("article");
    // Five times a power of two, like the article's file: an overflow loses a multiple of any power
    // of two, which changes nothing modulo a power of two.
    let end = data
        .read("--pattern seed-overflow-scaled --block-bytes 1 --size-bytes 2621440")
        .end()
        .clone();
    assert_eq!(
        (end["bytes"].as_u64(), end["covered_fraction"].as_f64()),
        (Some(2_621_440), Some(1.0))
    );
    let distinct = end["response"]["distinct_fraction"].as_f64().unwrap();
    assert!((0.59..0.61).contains(&distinct), "about 60 % at the article's size: {distinct}");
    assert!(end["checksum_ok"].is_null(), "bytes visited twice add up to nothing known");
}

#[test]
fn the_mended_stride_visits_every_byte_once() {
    let data = Dataset::new("stride");
    let arguments = "--pattern prime-stride --block-bytes 1 --size-bytes 1048576";
    let run = data.read(&format!("{arguments} --expect-sidecar {}", data.sidecar_path()));
    assert_eq!(run.end()["checksum_ok"], true);
    assert_eq!(run.end()["response"]["distinct_fraction"], 1.0);
}

#[test]
fn blocks_of_the_articles_order_overlap() {
    let data = Dataset::new("overlap");
    let end = data.read("--pattern seed-overflow --block-bytes 4096").end().clone();
    let distinct = end["response"]["distinct_fraction"].as_f64().unwrap();
    assert!((0.3..0.99).contains(&distinct), "{distinct}");
}

#[test]
fn threads_that_forget_their_part_read_one_part_between_them() {
    let data = Dataset::new("forget");
    for pattern in ["sequential", "random", "seed-overflow"] {
        let arguments =
            format!("--partition seed-bug --threads 4 --pattern {pattern} --expect-checksum 1");
        let end = data.read(&arguments).end().clone();
        let distinct = end["distinct_bytes"].as_u64().unwrap();
        assert!(distinct <= SIZE_BYTES / 4 + 8192, "{pattern}: {distinct}");
        assert!(end["bytes"].as_u64().unwrap() > SIZE_BYTES - 8 * 4096, "{pattern}: {end}");
        assert!(end["checksum_ok"].is_null(), "{pattern}");
    }
}

#[test]
fn a_part_of_the_articles_order_is_counted_too() {
    let data = Dataset::new("part");
    let arguments = "--pattern seed-overflow --block-bytes 1 --max-seconds 0.001 --fault-every 1";
    let end = data.read(arguments).end().clone();
    assert!(end["covered_fraction"].as_f64().unwrap() < 1.0, "{end}");
    assert!(end["distinct_bytes"].as_u64().unwrap() <= end["bytes"].as_u64().unwrap(), "{end}");
    assert!(end["distinct_bytes"].as_u64().unwrap() > 0, "{end}");
}

#[test]
fn the_self_test_tells_a_plan_that_leaves_bytes_out() {
    let data = Dataset::new("selftests");
    for plan in ["--pattern prime-stride --threads 3", "--pattern random --block-bytes 7"] {
        assert_eq!(
            data.read(&format!("--self-test {plan}")).last("self_test")["ok"],
            true,
            "{plan}"
        );
    }
    for plan in ["--pattern seed-overflow", "--partition seed-bug --threads 2"] {
        data.read(&format!("--self-test {plan}")).assert_refused(1, "would be visited");
    }
}

#[test]
fn a_pause_comes_before_each_block() {
    let data = Dataset::new("pause");
    let end = data.read("--size-bytes 40960 --pause-us 20000").end().clone();
    assert!(end["seconds"].as_f64().unwrap() >= 0.2, "{end}");
}

#[test]
fn warm_passes_are_not_measured_but_checked() {
    let data = Dataset::new("warm");
    let run = data.read(&format!("--warm-passes 2 --expect-sidecar {}", data.sidecar_path()));
    assert_eq!(run.lines.len(), 2, "one sample and the end");
    assert_eq!(run.end()["bytes"], SIZE_BYTES);
    data.read("--warm-passes 1 --max-seconds 100 --expect-checksum 1")
        .assert_refused(1, "do not add up");
}

#[test]
fn the_time_runs_from_the_first_measured_pass() {
    let data = Dataset::new("clock");
    let end = data
        .read("--size-bytes 20480 --pause-us 100000 --warm-passes 1 --max-seconds 0.9 --fault-every 1")
        .end()
        .clone();
    assert_eq!(end["covered_fraction"], 1.0, "half a second each, the warm one uncounted: {end}");
    assert_eq!(end["block_latency_us"]["count"], 5, "nothing of the warm pass is left: {end}");
}

#[test]
fn rounds_and_their_ends_are_figures_of_the_run() {
    let data = Dataset::new("rounds");
    let run = data.read("--passes 20 --pattern random");
    let found = &run.end()["response"];
    for (pass, name) in ["pass_1_seconds", "pass_2_seconds", "pass_3_seconds"].iter().enumerate() {
        assert_eq!(found[name], run.lines[pass]["seconds"], "{name}");
    }
    let of = |pass: usize| run.lines[pass]["seconds"].as_f64().unwrap();
    let last = found["pass_last_tenth_seconds"].as_f64().unwrap();
    assert!((last - f64::midpoint(of(18), of(19))).abs() < 1e-12);
    assert!(
        data.read("").end()["response"].get("pass_1_seconds").is_none(),
        "one pass has no rounds"
    );
}

#[test]
fn what_the_cpu_does_not_count_is_null_with_a_reason() {
    let data = Dataset::new("perf");
    let end = data.read("--pattern random").end().clone();
    let counted = end["response"]["cache_misses_per_block"].as_f64();
    match end["perf"]["reason"].as_str() {
        Some(reason) => assert!(counted.is_none() && reason.contains(' '), "{end}"),
        None => assert!(counted.is_some() && end["perf"]["cache_misses"].is_number(), "{end}"),
    }
}

#[test]
fn what_is_in_the_page_cache_is_told_before_and_after() {
    let data = Dataset::new("resident");
    std::fs::read(&data.file).unwrap();
    let dropped =
        data.read("--fadvise dontneed --size-bytes 3145728 --advice random --max-seconds 5");
    let found = &dropped.end()["response"];
    assert_eq!(found["resident_end_fraction"], 1.0, "all was read: {found}");
    assert_eq!(found["resident_open_bytes"], 3 << 20, "{found}");
    assert_eq!(found["setup_evicted_bytes"], 3 << 20, "{found}");
    assert_eq!(found["resident_end_buckets"].as_u64().unwrap_or(60), 60, "{found}");
    assert!(found["buff_cache_growth_bytes"].is_number(), "{found}");
}
