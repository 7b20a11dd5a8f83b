//! Tests of `pcprefault` with several processes that use one file.

use testbed::{Dataset, Run, SIZE_BYTES};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcprefault");

fn run(data: &Dataset, arguments: &str) -> Run {
    let (file, sidecar) = (data.file.display(), data.sidecar_path());
    Run::by_hand(PROGRAM, &format!("--file {file} --expect-sidecar {sidecar} {arguments}"))
}

fn dataset(test: &str) -> Dataset {
    Dataset::new(env!("CARGO_TARGET_TMPDIR"), test)
}

#[test]
fn a_mapped_file_is_there_once_and_copies_are_there_each() {
    let data = dataset("once");
    let bytes = |arguments: &str| {
        let found = run(&data, &format!("--processes 3 {arguments}"));
        (found.response("pss_sum_bytes").unwrap(), found.response("rss_sum_bytes").unwrap())
    };
    let length = SIZE_BYTES as f64;
    let (mapped, mapped_each) = bytes("--method populate-read");
    let (copied, _) = bytes("--method read");
    // The program's own pages are in both sums, and other tests share them, so only the difference
    // is exact: three copies less one are two, and it would be 0 if both were copies.
    assert!(copied - mapped > 1.2 * length, "{copied} {mapped}");
    assert!(mapped >= length && mapped_each > 2.9 * length, "{mapped} {mapped_each}");
}

#[test]
fn later_processes_find_it_loaded() {
    let data = dataset("later");
    data.make_cold();
    let found = run(&data, "--processes 3 --stagger-loaded --method populate-read");
    let each = found.end()["processes"].as_array().unwrap();
    let faults: Vec<i64> =
        each.iter().map(|one| one["prefault_major_faults"].as_i64().unwrap()).collect();
    assert!(faults[0] > 0 && faults[1..] == [0, 0], "{faults:?}");
    assert!(found.response("later_load_seconds") > Some(0.0));
    assert_eq!(found.end()["bytes"], 3 * SIZE_BYTES);
}

#[test]
fn they_begin_one_after_the_other() {
    let data = dataset("stagger");
    let seconds = |pause: u32| {
        let found = run(&data, &format!("--processes 4 --stagger-ms {pause}"));
        found.response("total_seconds").unwrap()
    };
    assert!(seconds(100) >= 0.3);
}

#[test]
fn one_alone_has_nobody_after_it() {
    let data = dataset("alone");
    let found = run(&data, "--processes 1 --method touch");
    assert!(found.response("first_load_seconds") > Some(0.0));
    assert_eq!(found.response("later_load_seconds"), None);
}

#[test]
fn one_that_refuses_is_the_refusal_of_all() {
    let found = Run::by_hand(PROGRAM, "--file /nowhere --processes 2");
    assert_eq!(found.code, Some(1));
    assert!(found.stderr.contains("/nowhere"), "{}", found.stderr);
}
