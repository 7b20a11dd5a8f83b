//! Tests of the handshake between `pcread` and the agent.

mod common;

use common::{Dataset, PROGRAM};
use testbed::WorkloadProcess;

fn start(data: &Dataset, arguments: &str) -> WorkloadProcess {
    WorkloadProcess::start(PROGRAM, &data.arguments(arguments))
}

/// Return a figure of the waiting process, `proc_pid_status(5)`.
fn resident_bytes(process: &WorkloadProcess, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let found = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    found.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn ready_go_samples_end_and_exit_when_stdin_closes() {
    let data = Dataset::new("talk");
    let mut process = start(&data, "--passes 2 --pattern random --threads 2");
    assert_eq!(process.read_line("ready")["pid"], process.child.id());
    assert!(process.is_running(), "it must wait for go");
    process.write("go\n");
    assert_eq!(process.read_line("sample")["iteration"], 0);
    assert_eq!(process.read_line("sample")["iteration"], 1);
    let end = process.read_line("end");
    assert_eq!(end["checksum"], data.sidecar.byte_sum.to_string());
    assert!(process.is_running(), "it must stay until stdin closes");
    assert_eq!(process.close_and_wait(), (Some(0), String::new()));
}

#[test]
fn stdin_closed_before_go_is_a_quiet_end() {
    let data = Dataset::new("closed");
    let mut process = start(&data, "--threads 3");
    process.read_line("ready");
    assert_eq!(process.close_and_wait(), (Some(0), String::new()));
}

#[test]
fn another_word_than_go_is_refused() {
    let data = Dataset::new("word");
    let mut process = start(&data, "");
    process.read_line("ready");
    process.write("stop\n");
    let (code, stderr) = process.close_and_wait();
    assert_eq!(code, Some(1));
    assert!(stderr.contains("\"stop\""), "{stderr}");
}

#[test]
fn the_heap_is_filled_before_ready() {
    let data = Dataset::new("filled");
    let mut process = start(&data, "--source heap");
    process.read_line("ready");
    assert!(resident_bytes(&process, "RssAnon:") >= common::SIZE_BYTES);
    process.write("go\n");
    let sample = process.read_line("sample");
    assert!(
        sample["minor_faults"].as_i64().unwrap() < 50,
        "filling must not happen while measuring: {sample}"
    );
    assert!(process.read_line("end")["setup"]["fill_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(process.close_and_wait().0, Some(0));
}

#[test]
fn populating_maps_every_page_before_ready() {
    let data = Dataset::new("populate");
    let mapped_bytes = |advice: &str| {
        let mut process = start(&data, advice);
        process.read_line("ready");
        let found = resident_bytes(&process, "RssFile:");
        assert_eq!(process.close_and_wait().0, Some(0));
        found
    };
    // The program's own pages are mapped files too, so only the difference is exact.
    let more =
        mapped_bytes("--advice populate-read").saturating_sub(mapped_bytes("--advice normal"));
    assert!(more > common::SIZE_BYTES / 2, "{more}");
}

#[test]
fn what_the_set_up_drops_is_said_at_ready() {
    let data = Dataset::new("dropped");
    let evicted = |arguments: &str| {
        let mut process = start(&data, arguments);
        let ready = process.read_line("ready");
        process.write("go\n");
        process.read_line("sample");
        process.read_line("end");
        assert_eq!(process.close_and_wait().0, Some(0));
        ready["evicted_bytes"].as_u64()
    };
    std::fs::read(&data.file).unwrap(); // so that there is something to drop
    std::fs::File::open(&data.file).unwrap().sync_all().unwrap(); // what was just made is dirty, and stays
    assert_eq!(evicted("--fadvise normal"), None);
    assert_eq!(evicted("--fadvise dontneed"), Some(common::SIZE_BYTES.next_multiple_of(4096)));
}

#[test]
fn a_wrong_sum_is_said_in_the_end_line_and_by_the_exit_code() {
    let data = Dataset::new("late");
    let mut process = start(&data, "--expect-checksum 1");
    process.read_line("ready");
    process.write("go\n");
    process.read_line("sample");
    assert_eq!(process.read_line("end")["checksum_ok"], false);
    assert!(process.is_running(), "its counters must still be there to be read");
    let (code, stderr) = process.close_and_wait();
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
}
