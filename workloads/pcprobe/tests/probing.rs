//! Tests of `pcprobe`: its report, and that it leaves nothing on the disk.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcprobe");
const NAMES: [&str; 6] = [
    "sequential_write",
    "sequential_read",
    "random_read",
    "random_read_sustained",
    "random_write",
    "random_write_sustained",
];

struct Folder(testbed::Folder);

impl Folder {
    fn new(parent: &str, test: &str) -> Self {
        Self(testbed::Folder::new(parent, test))
    }

    fn start(&self, arguments: &str) -> Child {
        let mut command = Command::new(PROGRAM);
        command.arg(&*self.0).args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn probe(&self, arguments: &str) -> Output {
        self.start(arguments).wait_with_output().unwrap()
    }
}

fn here(test: &str) -> Folder {
    Folder::new(env!("CARGO_TARGET_TMPDIR"), test)
}

fn report_of(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|cause| panic!("{cause}: {stderr}"))
}

/// Check that every phase has either a rate or a reason.
fn assert_honest(report: &Value) {
    let phases = report["phases"].as_array().unwrap();
    for phase in phases {
        assert_ne!(phase["ios_per_second"].is_null(), phase["reason"].is_null(), "{phase}");
        assert_eq!(phase["ios_per_second"].is_null(), phase["latency_us"].is_null(), "{phase}");
    }
    let mut names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    names.dedup();
    assert_eq!(names, NAMES);
}

/// Measure with an engine for this many seconds and check every phase. Returns the report as it was
/// printed.
fn measured_by(engine: &str, seconds: u32) -> (Folder, String) {
    let folder = here(engine);
    let output = folder.probe(&format!("--size 64MiB --seconds {seconds} --yes --engine {engine}"));
    let report = report_of(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_honest(&report);
    assert_eq!(report["complete"], true);
    assert!(
        report["summary"]["random_read_ios_per_second"].as_f64() > Some(1.0),
        "{}",
        report["summary"]
    );
    for phase in report["phases"].as_array().unwrap() {
        let blocks = phase["ios"].as_u64().unwrap() * phase["block_bytes"].as_u64().unwrap();
        assert!(phase["storage_bytes"].as_u64() >= Some(blocks), "{phase}");
    }
    assert!(folder.0.is_empty(), "its file must be gone");
    (folder, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn its_own_loop_measures_every_phase_and_names_nobody() {
    let (folder, report) = measured_by("own", 15);
    let summary = serde_json::from_str::<Value>(&report).unwrap()["summary"].take();
    // In less time a depth has too few windows for a rate, and a phase without a rate has no latency.
    assert!(summary["read_latency_us"]["p99"].as_f64() > Some(1.0), "{summary}");
    assert!(!report.contains(&folder.0.display().to_string()), "{report}");
    assert!(!report.contains(&format!("\"{}\"", host_name())), "{report}");
}

#[test]
fn its_threads_measure_every_phase() {
    measured_by("threads", 5);
}

#[test]
fn what_memory_answered_is_no_figure() {
    let folder = Folder::new("/dev/shm", "pcprobe");
    let report = report_of(&folder.probe("--size 16MiB --seconds 5 --yes --engine threads"));
    assert_honest(&report);
    assert_eq!(report["storage"]["filesystem"], "tmpfs");
    for phase in report["phases"].as_array().unwrap() {
        assert!(phase["reason"].as_str().unwrap().contains("memory answered"), "{phase}");
    }
    assert!(report["summary"]["sequential_read_bytes_per_second"].is_null());
}

#[test]
fn an_interruption_leaves_what_was_measured_and_no_file() {
    let folder = here("interrupted");
    let child = folder.start("--size 64MiB --seconds 15 --yes --engine own");
    std::thread::sleep(Duration::from_secs(3));
    assert!(folder.0.is_empty(), "its file must have no name, so that even a kill leaves none");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let report = report_of(&output);
    assert_eq!(output.status.code(), Some(130));
    assert_honest(&report);
    assert_eq!(report["complete"], false);
    assert!(report["phases"][0]["ios_per_second"].is_number(), "this one had ended");
    let last = report["phases"].as_array().unwrap().last().unwrap();
    assert_eq!(last["reason"], "interrupted before it began");
}

#[test]
fn it_names_host_and_folder_when_asked_to() {
    let folder = here("names");
    let named = report_of(&folder.probe("--size 16MiB --seconds 5 --yes --engine own --name-host"));
    assert_eq!(named["host_name"], host_name());
    assert_eq!(named["asked"]["folder"], folder.0.display().to_string());
}

#[test]
fn it_says_what_it_will_do_and_begins_only_with_a_yes() {
    let folder = here("asks");
    let output = folder.probe("--size 64MiB --seconds 15");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    assert!(
        stderr.contains("about 15 s") && stderr.contains("64 MiB") && stderr.contains("--yes"),
        "{stderr}"
    );
    assert!(folder.0.is_empty());
}

#[test]
fn what_cannot_be_is_one_sentence() {
    let folder = here("refused");
    for (arguments, code, words) in [
        ("--yes --size 1G", 2, "1G"),
        ("--yes --seconds 1", 2, "--seconds"),
        ("--yes --engine steam", 2, "steam"),
        ("--yes --size 8000000GiB", 77, "are free: --size"),
    ] {
        let output = folder.probe(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.starts_with("pcprobe: ") && stderr.contains(words), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let nowhere = Folder(testbed::Folder(PathBuf::from("/nowhere")));
    assert!(String::from_utf8_lossy(&nowhere.probe("--yes").stderr).contains("/nowhere"));
}

#[test]
fn a_fio_that_is_not_there_is_said_when_it_was_named() {
    let folder = here("fio");
    let mut command = Command::new(PROGRAM);
    command
        .arg(&*folder.0)
        .args(["--yes", "--size", "16MiB", "--engine", "fio"])
        .env("PATH", "/nowhere");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(77));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no fio here"));
}
