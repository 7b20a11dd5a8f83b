//! Tests of `pcprefault`: what it loads, and its report.

use testbed::{Dataset, Run, WorkloadProcess, SIZE_BYTES};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcprefault");

fn dataset(test: &str) -> Dataset {
    Dataset::new(env!("CARGO_TARGET_TMPDIR"), test)
}

fn run(data: &Dataset, arguments: &str) -> Run {
    let (file, sidecar) = (data.file.display(), data.sidecar_path());
    Run::by_hand(PROGRAM, &format!("--file {file} --expect-sidecar {sidecar} {arguments}"))
}

#[test]
fn every_method_leaves_the_right_bytes() {
    let data = dataset("methods");
    for method in [
        "read",
        "map-only",
        "map-populate",
        "touch",
        "touch-elided",
        "populate-read",
        "willneed",
        "readahead",
        "mlock",
    ] {
        for rest in ["", "--compute-threads 3", "--sum byte"] {
            data.make_cold();
            let found = run(&data, &format!("--method {method} {rest}"));
            assert_eq!(found.end()["checksum_ok"], true, "{method} {rest}");
            assert_eq!(found.end()["checksum"], data.sidecar.byte_sum.to_string(), "{method}");
            assert_eq!(found.end()["distinct_bytes"], SIZE_BYTES, "{method} {rest}");
        }
    }
}

#[test]
fn methods_that_load_leave_nothing_to_wait_for() {
    let data = dataset("loaded");
    for method in ["read", "map-populate", "touch", "populate-read", "mlock"] {
        data.make_cold();
        let found = run(&data, &format!("--method {method}"));
        assert_eq!(found.response("prefault_resident_fraction"), Some(1.0), "{method}");
        assert_eq!(found.response("sum_major_faults"), Some(0.0), "{method}");
    }
}

#[test]
fn a_mapping_alone_loads_nothing() {
    let data = dataset("lazy");
    data.make_cold();
    let found = run(&data, "--method map-only");
    assert_eq!(found.response("prefault_resident_bytes"), Some(0.0));
    assert!(found.response("sum_major_faults") > Some(0.0));
}

#[test]
fn the_loop_that_the_compiler_leaves_out_touches_nothing() {
    let data = dataset("elided");
    data.make_cold();
    let found = run(&data, "--method touch-elided");
    assert_eq!(found.response("prefault_resident_bytes"), Some(0.0));
    assert_eq!(found.response("prefault_minor_faults"), Some(0.0));
    assert_eq!(found.response("prefault_major_faults"), Some(0.0));
    assert!(run(&data, "--method touch").response("prefault_minor_faults") > Some(0.0));
}

#[test]
fn only_reading_takes_memory_of_its_own() {
    let data = dataset("anonymous");
    let taken = |method: &str| {
        run(&data, &format!("--method {method}")).response("prefault_anonymous_bytes").unwrap()
    };
    let length = SIZE_BYTES as f64;
    assert!((length..length * 1.2).contains(&taken("read")));
    assert!(taken("map-populate") < length * 0.2);
}

#[test]
fn without_a_thread_for_it_nothing_is_loaded_ahead() {
    let data = dataset("nobody");
    data.make_cold();
    for when in ["before", "beside"] {
        let found = run(
            &data,
            &format!("--method touch --prefault-threads 0 --compute-threads 2 --when {when}"),
        );
        assert_eq!(found.response("prefault_seconds"), None, "{when}");
        assert!(found.response("sum_seconds") > Some(0.0), "{when}");
    }
}

#[test]
fn computing_takes_its_time() {
    let data = dataset("computing");
    // Other load only makes it longer.
    for (arguments, least) in [
        ("--compute-seconds 0.2", 0.1),
        ("--compute-seconds-per-gib 34", 0.05),
        ("--compute-seconds 0", 0.0),
    ] {
        let found = run(&data, &format!("{arguments} --when beside --method touch"));
        let seconds = found.response("compute_seconds").unwrap();
        assert!((least..20.0).contains(&seconds), "{arguments}: {seconds}");
    }
}

#[test]
fn several_threads_may_load() {
    let data = dataset("several");
    for method in ["touch", "populate-read", "willneed"] {
        data.make_cold();
        let found = run(&data, &format!("--method {method} --prefault-threads 3 --when beside"));
        let roles: Vec<&str> = found.end()["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|thread| thread["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["prefault", "prefault", "prefault", "compute"]);
    }
}

#[test]
fn one_flipped_byte_is_noticed() {
    let data = dataset("flipped");
    let mut bytes = std::fs::read(&data.file).unwrap();
    bytes[1_234_567] ^= 1;
    std::fs::write(&data.file, bytes).unwrap();
    for more in ["", "--processes 2"] {
        let found = run(&data, more);
        assert_eq!(found.code, Some(1), "{more}");
        assert!(found.stderr.contains("do not add up"), "{}", found.stderr);
        assert_eq!(found.lines.last().unwrap()["checksum_ok"], false, "{more}");
    }
}

#[test]
fn it_waits_for_go_and_stays_until_its_input_closes() {
    let data = dataset("talk");
    let file = format!("--file {} --expect-sidecar {}", data.file.display(), data.sidecar_path());
    for more in [
        "--method touch --prefault-threads 2",
        "--method read",
        "--processes 2 --method map-populate",
    ] {
        let arguments = format!("{file} {more}");
        assert_eq!(WorkloadProcess::through(PROGRAM, &arguments)["checksum_ok"], true, "{more}");
        WorkloadProcess::cancelled(PROGRAM, &arguments);
    }
}

#[test]
fn nothing_is_loaded_before_go() {
    let data = dataset("patience");
    for more in [
        "--method map-populate",
        "--method touch",
        "--method read",
        "--processes 2 --method populate-read",
    ] {
        data.make_cold();
        let mut process =
            WorkloadProcess::start(PROGRAM, &format!("--file {} {more}", data.file.display()));
        process.read_line("ready");
        assert!(process.is_running());
        assert_eq!(data.resident_bytes(), 0, "{more}");
        assert_eq!(process.close_and_wait().0, Some(0));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let data = dataset("refused");
    run(&data, "--method sideways").assert_refused(2, "sideways");
    run(&data, "--method read --prefault-threads 2").assert_refused(2, "--prefault-threads");
    run(&data, "--method map-populate --when beside").assert_refused(2, "--when before");
    run(&data, "--compute-threads 0").assert_refused(2, "--compute-threads");
    run(&data, "--compute-seconds -1").assert_refused(2, "--compute-seconds");
    run(&data, "--processes 0").assert_refused(2, "--processes");
    Run::by_hand(PROGRAM, "--file /nowhere").assert_refused(1, "cannot open");
}

#[test]
fn a_file_cut_short_meanwhile_is_a_sentence_and_no_crash() {
    let data = dataset("cut");
    let mut process =
        WorkloadProcess::start(PROGRAM, &format!("--file {} --method touch", data.file.display()));
    process.read_line("ready");
    std::fs::OpenOptions::new().write(true).open(&data.file).unwrap().set_len(4096).unwrap();
    process.write("go\n");
    let (code, stderr) = process.close_and_wait();
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.starts_with("pcprefault: ") && stderr.contains("truncated"), "{stderr}");
}
