//! Tests of each source of `pcread`: the sum must be that of the sidecar.

mod common;

use common::{Dataset, SIZE_BYTES};

/// Every source, with the options it needs.
const SOURCES: [&str; 11] = [
    "--source heap",
    "--source mmap",
    "--source mmap --advice willneed-batched",
    "--source mmap --advice willneed-batched --queue-depth 1",
    "--source mmap --advice map-populate",
    "--source pread",
    "--source pread --direct",
    "--source uring --queue-depth 1",
    "--source uring --queue-depth 64",
    "--source uring --direct --queue-depth 7",
    "--source direct-cache --cache-bytes 1048576 --queue-depth 16",
];

#[test]
fn every_source_finds_every_byte() {
    let data = Dataset::new("sources");
    for source in SOURCES {
        for rest in [
            "",
            "--pattern random --threads 3",
            "--pattern prime-stride --block-bytes 65536 --queue-depth 4",
        ] {
            if rest.contains("queue-depth") && source.contains("queue-depth") {
                continue;
            }
            let arguments =
                format!("{source} {rest} --passes 2 --expect-sidecar {}", data.sidecar_path());
            let run = data.read(&arguments);
            assert_eq!(run.end()["checksum_ok"], true, "{arguments}");
            assert_eq!(run.end()["checksum"], data.sidecar.byte_sum.to_string(), "{arguments}");
            assert_eq!(run.end()["distinct_bytes"], SIZE_BYTES, "{arguments}");
            assert_eq!(run.end()["bytes"], 2 * SIZE_BYTES, "{arguments}");
        }
    }
}

#[test]
fn a_flipped_byte_is_noticed_by_every_source() {
    let data = Dataset::new("flips");
    let mut bytes = std::fs::read(&data.file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x10;
    std::fs::write(&data.file, bytes).unwrap();
    for source in SOURCES {
        let arguments =
            format!("{source} --pattern random --expect-sidecar {}", data.sidecar_path());
        data.read(&arguments).assert_refused(1, "do not add up");
    }
}

#[test]
fn short_blocks_are_read_whole() {
    let data = Dataset::new("blocks");
    for block_bytes in [1, 64, 1000, 1 << 20] {
        for source in [
            "--source mmap",
            "--source pread",
            "--source uring",
            "--source mmap --advice willneed-batched",
        ] {
            let size = if block_bytes == 1 { 1 << 20 } else { 3 << 20 };
            let arguments = format!(
                "{source} --size-bytes {size} --block-bytes {block_bytes} --pattern random"
            );
            let run = data.read(&format!("{arguments} --expect-sidecar {}", data.sidecar_path()));
            assert_eq!(run.end()["checksum_ok"], true, "{arguments}");
        }
    }
}

#[test]
fn a_cache_that_holds_all_reads_all_once() {
    let data = Dataset::new("held");
    let fraction = |cache_bytes: u64, passes: u32| {
        let arguments = format!(
            "--source direct-cache --cache-bytes {cache_bytes} --passes {passes} --pattern random"
        );
        data.read(&arguments).end()["response"]["cache_hit_fraction"].as_f64().unwrap()
    };
    assert!(fraction(8 << 20, 1).abs() < 1e-9, "nothing is asked for twice in one pass");
    assert!((fraction(8 << 20, 2) - 0.5).abs() < 1e-9, "the second pass finds all of the first");
    let third = fraction(1 << 20, 2);
    // A third of the pages is cached when the second pass begins, and evicted during it: a sixth of
    // a third is found.
    assert!((0.01..0.1).contains(&third), "{third}");
    assert!(fraction(400_000, 2) < third);
}

#[test]
fn quarters_of_a_page_share_its_frame() {
    let data = Dataset::new("quarters");
    let arguments =
        "--source direct-cache --cache-bytes 2097152 --block-bytes 1024 --size-bytes 2097152";
    let run = data.read(&format!("{arguments} --expect-sidecar {}", data.sidecar_path()));
    assert_eq!(run.end()["checksum_ok"], true);
    assert_eq!(run.end()["response"]["cache_hit_fraction"], 0.75);
}

#[test]
fn a_file_cut_short_is_a_sentence_for_readers_too() {
    for source in ["pread", "uring"] {
        let data = Dataset::new(&format!("cut-{source}"));
        let mut child = data
            .command(&format!("--source {source}"))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
            &mut ready,
        )
        .unwrap();
        std::fs::OpenOptions::new().write(true).open(&data.file).unwrap().set_len(4096).unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
        common::Run::of(common::PROGRAM, &child.wait_with_output().unwrap())
            .assert_refused(1, "cannot read");
    }
}

#[test]
fn huge_pages_of_the_heap_are_huge_or_the_host_says_no() {
    let data = Dataset::new("huge");
    std::fs::OpenOptions::new().write(true).open(&data.file).unwrap().set_len(16 << 20).unwrap();
    let run = data.read("--source heap-thp --pattern random");
    if run.code == Some(77) {
        return run.assert_refused(77, "transparent huge pages");
    }
    assert!(
        run.end()["smaps_rollup"]["anon_huge_pages_bytes"].as_u64() >= Some(2 << 20),
        "{}",
        run.end()
    );
    let plain = data.read("--source heap");
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    if !setting.contains("[always]") {
        assert_eq!(plain.end()["response"]["anon_huge_pages_bytes"], 0);
    }
}
