//! The talk between `pcread` and whoever measures it.

mod common;

use common::{Dataset, PROGRAM};
use testbed::Talk;

fn talk_about(data: &Dataset, arguments: &str) -> Talk {
    Talk::start(PROGRAM, &data.arguments(arguments))
}

/// What the kernel says of the waiting process, `proc_pid_status(5)`.
fn resident_bytes(talk: &Talk, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", talk.child.id())).unwrap();
    let found = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    found.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn ready_go_samples_end_and_exit_when_stdin_closes() {
    let data = Dataset::new("talk");
    let mut talk = talk_about(&data, "--passes 2 --pattern random --threads 2");
    assert_eq!(talk.hear("ready")["pid"], talk.child.id());
    assert!(talk.is_running(), "it must wait for go");
    talk.say("go\n");
    assert_eq!(talk.hear("sample")["iteration"], 0);
    assert_eq!(talk.hear("sample")["iteration"], 1);
    let end = talk.hear("end");
    assert_eq!(end["checksum"], data.sidecar.byte_sum.to_string());
    assert!(talk.is_running(), "it must stay until stdin closes");
    assert_eq!(talk.close_and_wait(), (Some(0), String::new()));
}

#[test]
fn stdin_closed_before_go_is_a_quiet_end() {
    let data = Dataset::new("closed");
    let mut talk = talk_about(&data, "--threads 3");
    talk.hear("ready");
    assert_eq!(talk.close_and_wait(), (Some(0), String::new()));
}

#[test]
fn another_word_than_go_is_refused() {
    let data = Dataset::new("word");
    let mut talk = talk_about(&data, "");
    talk.hear("ready");
    talk.say("stop\n");
    let (code, stderr) = talk.close_and_wait();
    assert_eq!(code, Some(1));
    assert!(stderr.contains("\"stop\""), "{stderr}");
}

#[test]
fn the_heap_is_filled_before_ready() {
    let data = Dataset::new("filled");
    let mut talk = talk_about(&data, "--source heap");
    talk.hear("ready");
    assert!(resident_bytes(&talk, "RssAnon:") >= common::SIZE_BYTES);
    talk.say("go\n");
    let sample = talk.hear("sample");
    assert!(
        sample["minor_faults"].as_i64().unwrap() < 50,
        "filling must not happen while measuring: {sample}"
    );
    assert!(talk.hear("end")["setup"]["fill_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(talk.close_and_wait().0, Some(0));
}

#[test]
fn populating_maps_every_page_before_ready() {
    let data = Dataset::new("populate");
    let mapped_bytes = |advice: &str| {
        let mut talk = talk_about(&data, advice);
        talk.hear("ready");
        let found = resident_bytes(&talk, "RssFile:");
        assert_eq!(talk.close_and_wait().0, Some(0));
        found
    };
    // The program's own pages are mapped files too, so only the difference tells.
    let more = mapped_bytes("--advice populate-read").saturating_sub(mapped_bytes("--advice normal"));
    assert!(more > common::SIZE_BYTES / 2, "{more}");
}

#[test]
fn what_the_set_up_drops_is_said_at_ready() {
    let data = Dataset::new("dropped");
    let evicted = |arguments: &str| {
        let mut talk = talk_about(&data, arguments);
        let ready = talk.hear("ready");
        talk.say("go\n");
        talk.hear("sample");
        talk.hear("end");
        assert_eq!(talk.close_and_wait().0, Some(0));
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
    let mut talk = talk_about(&data, "--expect-checksum 1");
    talk.hear("ready");
    talk.say("go\n");
    talk.hear("sample");
    assert_eq!(talk.hear("end")["checksum_ok"], false);
    assert!(talk.is_running(), "its counters must still be there to be read");
    let (code, stderr) = talk.close_and_wait();
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
}
