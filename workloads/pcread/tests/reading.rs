//! Tests of `pcread`: what it reads, and its report.

mod common;

use common::{Dataset, SIZE_BYTES};

#[test]
fn every_way_of_reading_finds_the_same_sum() {
    let data = Dataset::new("ways");
    for source in ["heap", "mmap"] {
        for pattern in ["sequential", "random"] {
            for rest in [
                "",
                "--threads 3",
                "--block-bytes 1024",
                "--block-bytes 1000 --threads 2",
                "--sum byte",
            ] {
                let arguments =
                    format!("--source {source} --pattern {pattern} {rest} --expect-sidecar");
                let run = data.read(&format!("{arguments} {}", data.sidecar_path()));
                let end = run.end();
                assert_eq!(end["checksum_ok"], true, "{arguments}");
                assert_eq!(end["checksum"], data.sidecar.byte_sum.to_string(), "{arguments}");
                assert_eq!(end["covered_fraction"], 1.0, "{arguments}");
                assert_eq!(end["distinct_bytes"], SIZE_BYTES, "{arguments}");
            }
        }
    }
}

#[test]
fn every_advice_is_taken() {
    let data = Dataset::new("advice");
    for advice in [
        "normal",
        "random",
        "sequential",
        "willneed",
        "willneed-batched",
        "populate-read",
        "map-populate",
        "nohugepage",
        "cold",
        "pageout",
        "dontneed",
    ] {
        let run =
            data.read(&format!("--advice {advice} --expect-checksum {}", data.sidecar.byte_sum));
        assert_eq!(run.end()["checksum_ok"], true, "{advice}");
    }
}

#[test]
fn passes_are_reported_one_by_one_and_together() {
    let data = Dataset::new("passes");
    let run = data.read("--passes 3 --threads 2 --pattern random");
    let kinds: Vec<&str> = run.lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["sample", "sample", "sample", "end"]);
    assert_eq!(run.end()["bytes"], 3 * SIZE_BYTES);
    assert_eq!(run.end()["distinct_bytes"], SIZE_BYTES);
    let blocks: u64 = run.end()["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["blocks"].as_u64().unwrap())
        .sum();
    assert_eq!(run.end()["blocks"], blocks);
    assert_eq!(blocks, 3 * SIZE_BYTES.div_ceil(4096));
    let seconds: f64 = run.lines[..3].iter().map(|line| line["seconds"].as_f64().unwrap()).sum();
    assert!((run.end()["seconds"].as_f64().unwrap() - seconds).abs() < 1e-9);
}

#[test]
fn the_last_short_block_counts() {
    let data = Dataset::new("short");
    let end = data.read("--block-bytes 65536 --pattern random").end().clone();
    assert_eq!(
        (end["blocks"].as_u64(), end["bytes"].as_u64()),
        (Some(SIZE_BYTES.div_ceil(65536)), Some(SIZE_BYTES))
    );
}

#[test]
fn a_wrong_sum_fails() {
    let data = Dataset::new("wrong");
    let run = data.read("--expect-checksum 12345");
    run.assert_refused(1, "do not add up");
    assert_eq!(run.lines.last().unwrap()["checksum_ok"], false);
}

#[test]
fn one_flipped_byte_is_noticed() {
    let data = Dataset::new("flipped");
    let mut bytes = std::fs::read(&data.file).unwrap();
    bytes[1_234_567] ^= 1;
    std::fs::write(&data.file, bytes).unwrap();
    let run = data.read(&format!("--pattern random --expect-sidecar {}", data.sidecar_path()));
    run.assert_refused(1, "do not add up");
}

#[test]
fn a_limit_of_time_gives_a_partial_pass_that_is_not_judged() {
    let data = Dataset::new("limit");
    // A billion single bytes cannot be read in 50 ms.
    let run = data.read(
        "--block-bytes 64 --sum byte --passes 300 --max-seconds 0.05 --expect-checksum 1 --source heap",
    );
    let last = &run.lines[run.lines.len() - 2];
    assert_eq!(last["type"], "sample");
    assert!(last["covered_fraction"].as_f64().unwrap() < 1.0, "{last}");
    let seconds = run.lines.last().unwrap()["seconds"].as_f64().unwrap();
    assert!((0.04..5.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_partial_first_pass_says_so() {
    let data = Dataset::new("partial");
    let run = data.read(
        "--block-bytes 1 --fault-every 1 --max-seconds 0.001 --expect-checksum 1 --pattern random",
    );
    let end = run.end();
    assert!(end["covered_fraction"].as_f64().unwrap() < 1.0, "{end}");
    assert_eq!(end["distinct_bytes"], end["blocks"]);
    assert!(end["checksum_ok"].is_null(), "a part cannot be judged: {end}");
}

#[test]
fn a_part_of_the_file_has_a_sum_too() {
    let data = Dataset::new("prefix");
    let sidecar = data.sidecar_path();
    let run =
        data.read(&format!("--size-bytes 2097152 --pattern random --expect-sidecar {sidecar}"));
    assert_eq!(run.end()["checksum_ok"], true);
    assert_eq!(run.end()["bytes"], 2_097_152);
    data.read(&format!("--size-bytes 2097153 --expect-sidecar {sidecar}"))
        .assert_refused(2, "2097153");
}

#[test]
fn touching_looks_at_every_page_and_claims_no_sum() {
    let data = Dataset::new("touch");
    let end = data.read("--sum touch --pattern random --advice random").end().clone();
    assert!(end["checksum"].is_null() && end["checksum_ok"].is_null(), "{end}");
    assert_eq!(end["blocks"], SIZE_BYTES.div_ceil(4096));
}

#[test]
fn latencies_are_sampled_as_asked() {
    let data = Dataset::new("latency");
    let count = |every: &str| {
        data.read(&format!("--fault-every {every} --threads 2")).end()["block_latency_us"]["count"]
            .as_u64()
            .unwrap()
    };
    assert_eq!((count("1"), count("0")), (SIZE_BYTES.div_ceil(4096), 0));
    assert!((4..40).contains(&count("64")));
}

#[test]
fn more_threads_than_pages_still_cover_all() {
    let data = Dataset::new("many");
    let end = data.read("--size-bytes 10000 --threads 7 --pattern random").end().clone();
    assert_eq!(
        (end["bytes"].as_u64(), end["threads"].as_array().unwrap().len()),
        (Some(10_000), 7)
    );
}

#[test]
fn the_self_test_proves_coverage_without_reading() {
    let data = Dataset::new("selftest");
    let line = data
        .read("--self-test --pattern random --block-bytes 100 --threads 3")
        .last("self_test")
        .clone();
    assert_eq!(line["ok"], true);
    assert_eq!(line["distinct_bytes"], SIZE_BYTES);
    assert_eq!(line["bytes"], SIZE_BYTES);
}

#[test]
fn every_file_advice_is_taken() {
    let data = Dataset::new("fadvice");
    for source in ["mmap", "pread"] {
        for advice in ["normal", "sequential", "random", "noreuse", "willneed"] {
            let arguments = format!("--source {source} --fadvise {advice}");
            let run =
                data.read(&format!("{arguments} --expect-checksum {}", data.sidecar.byte_sum));
            assert_eq!(run.end()["checksum_ok"], true, "{arguments}");
        }
    }
}
