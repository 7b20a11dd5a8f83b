//! Tests of `pcindex` on a real index.

mod fixture;

use fixture::{Index, BUCKETS, FILES, PROGRAM, SIZE_BYTES};
use std::collections::HashSet;
use testbed::WorkloadProcess;

const LOADS: [&str; 7] =
    ["lazy", "sequential", "parallel", "touch", "populate", "willneed", "none"];

#[test]
fn every_load_gives_the_same_answers() {
    let index = Index::new("loads");
    let mut checksums = HashSet::new();
    for load in LOADS {
        let run = index.run(&format!("--load {load} --lookups all"));
        let end = run.end();
        assert_eq!(
            (&end["checksum_ok"], &end["answers"]["wrong"]),
            (&true.into(), &0.into()),
            "{load}"
        );
        assert_eq!(end["covered_fraction"], 1.0, "{load}");
        assert_eq!(end["distinct_bytes"], SIZE_BYTES, "{load}");
        assert_eq!(end["index"]["buckets"], BUCKETS);
        assert!(run.response("ready_seconds") >= run.response("lookup_seconds"), "{load}");
        assert_eq!(run.response("load_seconds").is_none(), load == "none");
        if load != "lazy" {
            checksums.insert(end["checksum"].to_string());
        }
    }
    assert_eq!(checksums.len(), 1);
}

#[test]
fn lazy_loading_asks_about_every_bucket_and_then_again() {
    let index = Index::new("lazy");
    let lazy = index.run("--load lazy --lookups 10");
    assert_eq!(lazy.end()["blocks"], BUCKETS + 10);
    assert_eq!(lazy.end()["bytes"], SIZE_BYTES + 10 * 4096);
    let none = index.run("--load none --lookups 10");
    assert_eq!(none.end()["blocks"], 10);
    assert_eq!(none.end()["distinct_bytes"], 10 * 4096);
}

#[test]
fn some_keys_are_there_and_some_are_not() {
    let index = Index::new("absent");
    let answers = index.run("--load none").end()["answers"].clone();
    let (found, absent) = (answers["found"].as_u64().unwrap(), answers["absent"].as_u64().unwrap());
    assert_eq!(found + absent, BUCKETS);
    assert!(absent > BUCKETS / 10 && absent < BUCKETS / 2, "{answers}");
}

#[test]
fn a_damaged_entry_is_a_wrong_answer() {
    let index = Index::new("damaged");
    // The value of every slot in every bucket of a file.
    let values =
        (0..40).flat_map(|bucket| (0..168).map(move |slot| bucket * 4096 + 64 + slot * 24 + 16));
    index.damage(2, values);
    let run = index.run("--load none");
    assert_eq!(run.code, Some(1));
    let end = run.lines.last().unwrap();
    assert_eq!(end["checksum_ok"], false);
    let wrong = end["answers"]["wrong"].as_u64().unwrap();
    assert!((20..40).contains(&wrong), "three in four of the file's forty buckets: {wrong}");
    run.assert_refused(1, "answers were wrong");
}

#[test]
fn a_damaged_byte_that_nobody_asked_for_is_found_by_reading() {
    let index = Index::new("filler");
    index.damage(3, [50]);
    assert_eq!(index.run("--load touch").code, Some(0));
    for load in ["sequential", "parallel"] {
        index.run(&format!("--load {load}")).assert_refused(1, "1 files did not add up");
    }
}

#[test]
fn parallel_files_are_shared_among_the_threads() {
    let index = Index::new("parallel");
    let run = index.run("--load parallel --parallel-files 3 --block-bytes 65536");
    let threads = run.end()["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1 + 3);
    let pieces: u64 = threads[1..].iter().map(|thread| thread["blocks"].as_u64().unwrap()).sum();
    assert!(pieces >= SIZE_BYTES / 65536, "{pieces}");
    let few = index.run("--load parallel --parallel-files 100");
    assert_eq!(few.end()["threads"].as_array().unwrap().len() as u64, 1 + FILES);
}

#[test]
fn advice_may_change_between_loading_and_looking_up() {
    let index = Index::new("advice");
    for advice in [
        "--load touch --advice sequential --then-advice normal",
        "--load lazy --advice random --then-advice same",
    ] {
        assert_eq!(index.run(advice).end()["checksum_ok"], true, "{advice}");
    }
}

#[test]
fn time_that_runs_out_leaves_figures_unknown() {
    let index = Index::new("deadline");
    for load in ["lazy", "sequential"] {
        let run = index.run(&format!("--load {load} --max-seconds 0"));
        assert_eq!(run.response("ready_seconds"), None);
        assert_eq!(run.response("load_seconds"), None);
        assert!(run.end()["covered_fraction"].is_null());
        assert_eq!(run.end()["bytes"], 0);
    }
}

#[test]
fn it_talks_as_the_contract_says() {
    let index = Index::new("talk");
    for load in LOADS {
        let end = WorkloadProcess::through(PROGRAM, &index.arguments(&format!("--load {load}")));
        assert_eq!(end["checksum_ok"], true);
        WorkloadProcess::cancelled(PROGRAM, &index.arguments(&format!("--load {load}")));
    }
}
