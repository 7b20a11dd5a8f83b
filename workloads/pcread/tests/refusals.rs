//! Refusals of `pcread`: one sentence each, and an exit code for the kind of failure.

mod common;

use common::{Dataset, Run};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn wrong_arguments_are_exit_code_2() {
    let data = Dataset::new("arguments");
    data.read("--pattern sideways").assert_refused(2, "sideways");
    data.read("--block-bytes 0").assert_refused(2, "--block-bytes");
    data.read("--threads 0").assert_refused(2, "--threads");
    data.read("--threads 100000").assert_refused(2, "--threads");
    data.read("--max-seconds -1").assert_refused(2, "--max-seconds");
    data.read("--max-seconds soon").assert_refused(2, "soon");
    data.read("--colour red").assert_refused(2, "--colour");
    data.read("--source heap --advice random").assert_refused(2, "--source mmap");
    data.read("--source heap --fadvise random").assert_refused(2, "--fadvise");
    data.read("--source mmap --direct").assert_refused(2, "--source pread");
    data.read("--source uring --direct --block-bytes 1000").assert_refused(2, "multiple of 4096");
    data.read("--source direct-cache --block-bytes 6144").assert_refused(2, "multiple of 4096");
    data.read("--source direct-cache --cache-bytes lots").assert_refused(2, "lots");
    data.read("--source pread --direct --pattern seed-overflow").assert_refused(2, "seed-overflow");
    data.read("--queue-depth 0").assert_refused(2, "--queue-depth");
    data.read("--max-seconds 0").assert_refused(2, "--max-seconds");
    data.read("--sum touch --expect-checksum 1").assert_refused(2, "--sum touch");
}

#[test]
fn files_that_cannot_serve_are_exit_code_1() {
    let data = Dataset::new("files");
    data.read("--size-bytes 99999999").assert_refused(1, "only 3149901 bytes");
    data.read("--expect-sidecar /nowhere.json").assert_refused(1, "/nowhere.json");
    data.read(&format!("--expect-sidecar {}", data.file.display())).assert_refused(1, "sidecar");
    std::fs::write(&data.file, "").unwrap();
    data.read("").assert_refused(1, "is empty");
    std::fs::remove_file(&data.file).unwrap();
    data.read("").assert_refused(1, "cannot open");
}

#[test]
fn memory_that_cannot_be_had_is_exit_code_77() {
    let data = Dataset::new("memory");
    std::fs::OpenOptions::new().write(true).open(&data.file).unwrap().set_len(1 << 30).unwrap();
    let reader =
        format!("{} --file {} --source heap", env!("CARGO_BIN_EXE_pcread"), data.file.display());
    let limited = format!("ulimit -v 65536; exec {reader}");
    let output = Command::new("sh").args(["-c", &limited]).stdin(Stdio::null()).output().unwrap();
    Run::of("pcread", &output).assert_refused(77, "cannot map");
}

#[test]
fn a_file_cut_short_meanwhile_is_a_sentence_and_no_crash() {
    let data = Dataset::new("cut");
    let mut child = data.command("--advice random").stdin(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    std::fs::OpenOptions::new().write(true).open(&data.file).unwrap().set_len(4096).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    Run::of("pcread", &child.wait_with_output().unwrap()).assert_refused(1, "truncated");
}

#[test]
fn help_has_examples_and_is_no_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_pcread")).arg("--help").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Examples:") && text.contains("--max-seconds"), "{text}");
}

#[test]
fn a_cache_too_small_for_its_reads_is_exit_code_77() {
    let data = Dataset::new("small");
    data.read("--source direct-cache --cache-bytes 50000")
        .assert_refused(77, "has no room for 32 reads");
}
