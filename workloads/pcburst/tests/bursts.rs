//! Tests of `pcburst`: the memory that it takes, the page cache that it meets, and its report.

use testbed::{Dataset, Run, WorkloadProcess, SIZE_BYTES};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcburst");

fn dataset(test: &str) -> Dataset {
    Dataset::new(env!("CARGO_TARGET_TMPDIR"), test)
}

fn run(data: &Dataset, arguments: &str) -> Run {
    let (file, folder) = (data.file.display(), data.folder.display());
    Run::by_hand(PROGRAM, &format!("--file {file} --dir {folder} {arguments}"))
}

#[test]
fn all_of_it_is_taken_and_timed_piece_by_piece() {
    let data = dataset("taken");
    for huge_pages in ["as-set-up", "never"] {
        let found = run(&data, &format!("--bytes {} --huge-pages {huge_pages}", 33 << 20));
        assert_eq!(found.end()["checksum_ok"], true);
        assert_eq!(found.end()["bytes"], 33 << 20);
        let figure = |name: &str| found.response(name).unwrap();
        assert!(figure("burst_p50_us") <= figure("burst_p99_us"), "{huge_pages}");
        assert!(figure("burst_p99_us") <= figure("burst_max_us"), "{huge_pages}");
        assert!(figure("burst_max_us") <= figure("burst_seconds") * 1e6, "{huge_pages}");
    }
}

#[test]
fn the_page_cache_is_as_asked_and_told() {
    let data = dataset("states");
    let whole = SIZE_BYTES.next_multiple_of(4096) as f64;
    let state = |name: &str| {
        data.make_cold();
        let found = run(&data, &format!("--bytes 1048576 --page-cache {name}"));
        (found.response("cache_before_bytes"), found.response("unwritten_before_bytes"))
    };
    assert_eq!(state("empty"), (Some(0.0), Some(0.0)));
    let (Some(clean), Some(dirty)) = (state("clean").0, state("dirty").1) else {
        eprintln!("no cachestat(2) here");
        return;
    };
    assert!(clean >= whole, "{clean}");
    assert!(dirty > whole / 2.0, "{dirty}");
    assert_eq!(state("clean").1, Some(0.0));
}

#[test]
fn an_amount_may_be_a_share_of_a_file() {
    let data = dataset("share");
    let found = run(&data, &format!("--size-of {} --fraction 0.5", data.file.display()));
    assert_eq!(found.end()["bytes"], SIZE_BYTES / 2 / 4096 * 4096);
}

#[test]
fn it_waits_for_go_and_leaves_nothing() {
    let data = dataset("talk");
    let before = std::fs::read_dir(&*data.folder).unwrap().count();
    let (file, folder) = (data.file.display(), data.folder.display());
    let arguments = format!("--bytes 4194304 --page-cache dirty --file {file} --dir {folder}");
    assert_eq!(WorkloadProcess::through(PROGRAM, &arguments)["checksum_ok"], true);
    WorkloadProcess::cancelled(PROGRAM, &arguments);
    assert_eq!(std::fs::read_dir(&*data.folder).unwrap().count(), before);
}

#[test]
fn memory_is_not_taken_before_go() {
    let mut process = WorkloadProcess::start(PROGRAM, "--bytes 67108864");
    process.read_line("ready");
    let taken = contract::listed_sizes::ListedSizes::of(Some(process.child.id()))
        .unwrap()
        .bytes("Anonymous")
        .unwrap();
    assert!(taken < 8 << 20, "{taken}");
    assert_eq!(process.close_and_wait().0, Some(0));
}

#[test]
fn what_cannot_be_is_refused() {
    let data = dataset("refused");
    run(&data, "--bytes 4096 --page-cache damp").assert_refused(2, "damp");
    run(&data, "--bytes 100").assert_refused(2, "less than one page");
    run(&data, "--bytes 4611686018427387904").assert_refused(77, "cannot reserve");
    Run::by_hand(PROGRAM, "--bytes 4096 --page-cache clean").assert_refused(2, "--file");
    Run::by_hand(PROGRAM, "--bytes 4096 --page-cache dirty --file /etc/passwd")
        .assert_refused(2, "--dir");
    Run::by_hand(PROGRAM, "--bytes 4096 --page-cache clean --file /nowhere")
        .assert_refused(1, "/nowhere");
}
