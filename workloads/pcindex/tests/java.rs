//! Comparison of the port to Java with `pcindex` on the same files. Without a JDK `pcindex-java` is
//! not built and exits with 77. These tests then report that they are skipped.

mod fixture;

use fixture::{Index, BUCKETS, PROGRAM, SIZE_BYTES};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use testbed::{Run, WorkloadProcess};

static CLASSES: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Return the folder of the compiled classes; None without a Java compiler.
fn classes() -> Option<&'static Path> {
    let found = CLASSES.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../java");
        let sources = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("classes");
        let mut javac = Command::new("javac");
        javac.args(["--release", "17", "-Xlint:all", "-Werror", "-d"]).arg(&folder);
        javac.args(
            sources.filter(|path| path.extension().is_some_and(|extension| extension == "java")),
        );
        let status = javac.stdin(Stdio::null()).status().ok()?;
        assert!(status.success(), "workloads/java does not compile");
        Some(folder)
    });
    if found.is_none() {
        eprintln!("skipped: there is no javac here");
    }
    found.as_deref()
}

fn java_arguments(classes: &Path, arguments: &str) -> String {
    format!("-XX:+UseSerialGC -Xmx64m -cp {} PcIndex {arguments}", classes.display())
}

fn run(classes: &Path, arguments: &str) -> Run {
    let run = Run::by_hand("java", &java_arguments(classes, arguments));
    Run { program: "pcindex-java".to_owned(), ..run }
}

#[test]
fn both_give_the_same_answers() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java");
    for (java, rust) in
        [("lazy", "lazy"), ("sequential", "sequential"), ("load", "touch"), ("none", "none")]
    {
        let ours = run(classes, &index.arguments(&format!("--load {java}")));
        let theirs = Run::by_hand(PROGRAM, &index.arguments(&format!("--load {rust}")));
        for key in [
            "checksum",
            "checksum_ok",
            "bytes",
            "blocks",
            "distinct_bytes",
            "covered_fraction",
            "index",
            "answers",
        ] {
            assert_eq!(ours.end()[key], theirs.end()[key], "{java} {key}");
        }
        let names =
            |end: &Value| end["response"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(ours.end()), names(theirs.end()));
        assert_eq!(ours.response("load_seconds").is_none(), java == "none");
        assert!(ours.response("ready_seconds").unwrap() > 0.0);
    }
}

#[test]
fn some_lookups_are_the_same_ones() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java-some");
    let ours = run(classes, &index.arguments("--load none --lookups 17 --seed 9"));
    let theirs = Run::by_hand(PROGRAM, &index.arguments("--load none --lookups 17 --seed 9"));
    assert_eq!(ours.end()["checksum"], theirs.end()["checksum"]);
}

#[test]
fn damage_is_found() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java-damage");
    index.damage(3, [50]);
    run(classes, &index.arguments("--load sequential")).assert_refused(1, "1 files were wrong");
    index.damage(
        2,
        (0..40).flat_map(|bucket| (0..168).map(move |slot| bucket * 4096 + 80 + slot * 24)),
    );
    let run = run(classes, &index.arguments("--load none"));
    run.assert_refused(1, "answers");
    assert_eq!(run.lines.last().unwrap()["checksum_ok"], false);
}

#[test]
fn time_that_runs_out_leaves_figures_unknown() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java-deadline");
    for load in ["lazy", "sequential", "load"] {
        let run = run(classes, &index.arguments(&format!("--load {load} --max-seconds 0")));
        assert_eq!(run.response("ready_seconds"), None, "{load}");
        assert_eq!(run.end()["bytes"], 0, "{load}");
    }
}

#[test]
fn bad_arguments_are_told_in_one_sentence() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java-arguments");
    for (bad, words) in
        [("--load magic", "magic"), ("--lookups x", "--lookups"), ("--dance 1", "--dance")]
    {
        run(classes, &index.arguments(bad)).assert_refused(2, words);
    }
    let too_many = format!("--lookups {}", BUCKETS + 1);
    run(classes, &index.arguments(&too_many)).assert_refused(2, "there are only");
    run(classes, "--load lazy").assert_refused(2, "--files");
}

#[test]
fn it_talks_as_the_contract_says() {
    let Some(classes) = classes() else { return };
    let index = Index::new("java-talk");
    let arguments = java_arguments(classes, &index.arguments("--load lazy"));
    assert_eq!(WorkloadProcess::through("java", &arguments)["distinct_bytes"], SIZE_BYTES);
    WorkloadProcess::cancelled("java", &arguments);
}
