//! Refusals of `pcindex`: one sentence each.

mod fixture;

use fixture::{Index, PROGRAM};
use pcgen::Fill;
use testbed::Run;

#[test]
fn bad_arguments_are_named() {
    let index = Index::new("arguments");
    index.run("--load magic").assert_refused(2, "magic");
    index.run("--lookups some").assert_refused(2, "neither a number nor");
    index.run("--lookups 201").assert_refused(2, "more than the start-up set has");
    index.run("--block-bytes 70000").assert_refused(2, "multiple of 65536");
    Run::by_hand(PROGRAM, "--load lazy").assert_refused(2, "--files");
}

#[test]
fn a_file_that_is_no_index_is_refused_before_anything_is_read() {
    let index = Index::new("random");
    index.make(4, Fill::Random);
    index.run("").assert_refused(1, "is no whole index");
}

#[test]
fn a_file_cut_short_is_refused() {
    let index = Index::new("short");
    let file = std::fs::OpenOptions::new().write(true).open(index.file(1)).unwrap();
    file.set_len(4096).unwrap();
    index.run("").assert_refused(1, "is no whole index");
}

#[test]
fn a_missing_sidecar_is_named() {
    let index = Index::new("sidecar");
    std::fs::remove_file(index.0.join("5.bin.json")).unwrap();
    index.run("").assert_refused(1, "5.bin.json");
}
