//! Tests of `pcwrite`: what it writes, and its report.

use testbed::{Run, WorkloadProcess};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcwrite");
const PAGES: u64 = 512;

struct Folder(testbed::Folder);

impl Folder {
    fn new(test: &str) -> Self {
        Self(testbed::Folder::new(env!("CARGO_TARGET_TMPDIR"), test))
    }

    fn arguments(&self, more: &str) -> String {
        format!("--dir {} --bytes {} {more}", self.0.display(), PAGES * 4096)
    }

    fn write(&self, more: &str) -> Run {
        Run::by_hand(PROGRAM, &self.arguments(more))
    }
}

#[test]
fn every_way_of_writing_comes_back_right() {
    let folder = Folder::new("ways");
    for method in ["mmap", "pwrite"] {
        for pattern in ["sequential", "random"] {
            for rest in
                ["", "--msync async", "--msync sync", "--msync sync --every-pages 64", "--passes 2"]
            {
                let arguments = format!("--method {method} --pattern {pattern} {rest}");
                let found = folder.write(&arguments);
                assert_eq!(found.end()["checksum_ok"], true, "{arguments}");
                assert_eq!(found.end()["distinct_bytes"], PAGES * 4096, "{arguments}");
                assert_eq!(found.response("read_back_fraction"), Some(1.0), "{arguments}");
                assert!(found.end()["check_seconds"].as_f64() > Some(0.0), "{arguments}");
            }
        }
    }
    assert!(folder.0.is_empty(), "its file must be gone");
}

#[test]
fn settled_is_on_the_disk_and_unsettled_is_not() {
    let folder = Folder::new("settled");
    let on_disk = |arguments: &str| folder.write(arguments).response("on_disk_fraction");
    let settled = on_disk("--msync sync");
    if settled.is_none() {
        eprintln!("the disk beneath cannot be read here");
        return;
    }
    assert_eq!(settled, Some(1.0));
    assert_eq!(on_disk("--method pwrite --msync sync"), Some(1.0));
    assert!(on_disk("--msync none") < Some(0.5), "nobody asked for it to be written so soon");
}

#[test]
fn what_waits_is_counted() {
    let folder = Folder::new("waits");
    let waits = |arguments: &str| folder.write(arguments).response("unwritten_after_bytes");
    let Some(left) = waits("--msync none") else {
        eprintln!("no cachestat(2) here");
        return;
    };
    assert!(left > (PAGES * 4096 / 2) as f64, "{left}");
    assert_eq!(waits("--msync sync"), Some(0.0));
    assert!(folder.write("--msync none").response("unwritten_peak_bytes") >= Some(left / 2.0));
}

#[test]
fn a_store_into_a_clean_page_is_a_fault_and_a_call_is_none() {
    let folder = Folder::new("faults");
    let faults = |arguments: &str| folder.write(arguments).response("page_mkwrite_faults");
    let once = faults("--pattern random").unwrap();
    // The kernel may map neighbouring pages of a large folio by one fault, so that a few are missing.
    let least = 0.95 * PAGES as f64;
    assert!(once >= least, "{once}");
    let again = faults("--pattern random --passes 2 --msync sync").unwrap();
    assert!(again >= 2.0 * least, "{again}: settled pages are clean, and fault again");
    assert_eq!(faults("--method pwrite"), None);
}

#[test]
fn its_times_fit_together() {
    let folder = Folder::new("times");
    let found = folder.write("--msync sync --every-pages 100 --passes 2");
    let figure = |name: &str| found.response(name).unwrap();
    let total = figure("total_seconds");
    assert!((figure("write_seconds") + figure("msync_seconds") - total).abs() < 1e-9);
    assert!((figure("mean_page_us") * 2.0 * PAGES as f64 / 1e6 - total).abs() < 1e-6);
    assert!((figure("written_bytes_per_second") * total - (2 * PAGES * 4096) as f64).abs() < 1.0);
    let samples: f64 = found.lines[..2].iter().map(|line| line["seconds"].as_f64().unwrap()).sum();
    assert!((samples - total).abs() < 1e-9);
}

#[test]
fn it_stops_in_time_and_says_how_far_it_came() {
    let folder = Folder::new("time");
    let end =
        folder.write("--msync sync --every-pages 1 --max-seconds 0 --pattern random").end().clone();
    assert_eq!(end["blocks"], 16, "{end}");
    assert_eq!(end["checksum_ok"], true, "{end}");
    assert!((end["covered_fraction"].as_f64().unwrap() - 16.0 / PAGES as f64).abs() < 1e-9);
}

#[test]
fn it_waits_for_go_and_leaves_nothing() {
    let folder = Folder::new("talk");
    let arguments = folder.arguments("--msync sync");
    assert_eq!(WorkloadProcess::through(PROGRAM, &arguments)["checksum_ok"], true);
    WorkloadProcess::cancelled(PROGRAM, &arguments);
    let mut process = WorkloadProcess::start(PROGRAM, &arguments);
    process.read_line("ready");
    assert!(folder.0.is_empty(), "its file must have no name, so that even a kill leaves none");
    process.child.kill().unwrap();
    process.child.wait().unwrap();
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = Folder::new("refused");
    folder.write("--msync perhaps").assert_refused(2, "perhaps");
    folder.write("--every-pages 0").assert_refused(2, "--every-pages");
    Run::by_hand(PROGRAM, "--dir /nowhere --bytes 4096").assert_refused(1, "/nowhere");
    Run::by_hand(PROGRAM, "--dir /tmp --bytes 100").assert_refused(2, "less than one page");
    Run::by_hand(PROGRAM, "--dir /tmp").assert_refused(2, "--bytes");
    let all = "--bytes 4611686018427387904";
    Run::by_hand(PROGRAM, &format!("--dir {} {all}", folder.0.display()))
        .assert_refused(77, "beforehand");
}
