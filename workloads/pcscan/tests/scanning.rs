//! Tests of `pcscan`: what it scans in every treatment, and its report.

use contract::Sidecar;
use pcgen::{make, Fill, Request};
use serde_json::Value;
use std::path::PathBuf;
use testbed::{Folder, Run, WorkloadProcess};

/// Length of a file, which is no multiple of a page or a window.
const PROGRAM: &str = env!("CARGO_BIN_EXE_pcscan");
const SIZE_BYTES: u64 = (3 << 20) + 4096 + 77;
const FILES: u64 = 3;

struct Dataset(Folder);

impl Dataset {
    fn new(test: &str) -> Self {
        let dataset = Self(Folder::new(env!("CARGO_TARGET_TMPDIR"), test));
        for (file, seed) in dataset.files().into_iter().zip(1..) {
            make(&Request {
                out: file,
                size_bytes: SIZE_BYTES,
                seed,
                fill: Fill::Random,
                force: false,
            })
            .unwrap();
        }
        dataset
    }

    fn files(&self) -> Vec<PathBuf> {
        (1..=FILES).map(|number| self.0.join(format!("data{number}"))).collect()
    }

    fn arguments(&self, more: &str) -> String {
        let files: Vec<String> =
            self.files().iter().map(|file| file.display().to_string()).collect();
        format!("--files {} {more}", files.join(" "))
    }

    fn scan(&self, arguments: &str) -> Run {
        Run::by_hand(PROGRAM, &self.arguments(arguments))
    }

    /// Return the closing line of a run that must succeed; None if this kernel does not support it.
    ///
    /// The lack of support must be reported in one sentence.
    fn end(&self, arguments: &str) -> Option<Value> {
        let run = self.scan(arguments);
        if run.code == Some(77) {
            run.assert_refused(77, "");
            return None;
        }
        Some(run.end().clone())
    }

    fn assert_refused(&self, arguments: &str, code: i32, words: &str) {
        self.scan(arguments).assert_refused(code, words);
    }

    fn expected(&self, of: fn(&Sidecar) -> u64) -> String {
        let sums = self
            .files()
            .into_iter()
            .map(|file| of(&Sidecar::load(&Sidecar::path_of(&file)).unwrap()));
        sums.sum::<u64>().to_string()
    }
}

fn assert_whole(end: &Value, sum: &str, arguments: &str) {
    assert_eq!(end["checksum_ok"], true, "{arguments}");
    assert_eq!(end["checksum"], sum, "{arguments}");
    assert_eq!(end["covered_fraction"], 1.0, "{arguments}");
    assert_eq!(end["distinct_bytes"], SIZE_BYTES * FILES, "{arguments}");
    assert_eq!(end["files"].as_array().unwrap().len() as u64, FILES, "{arguments}");
}

#[test]
fn every_arm_finds_the_same_sum() {
    let data = Dataset::new("arms");
    let sum = data.expected(|sidecar| sidecar.stride512_sum);
    let arms = [
        "--exec sync1",
        "--exec sync1 --io read",
        "--exec threads --workers 2",
        "--exec threads --io read",
        "--exec async-ct",
        "--exec async-ct --io read",
        "--exec async-ct --io tokio-fs",
        "--exec async-sequential --io tokio-fs",
        "--exec async-mt --workers 2",
        "--exec async-mt --workers 2 --io tokio-fs",
        "--exec async-ct --io conventional",
        "--exec threads --io conventional",
        "--exec async-ct --io uring --depth 3",
        "--exec async-ct --io uring-direct --buf 128K",
        "--exec async-mt --io uring",
    ];
    for arm in arms {
        let arguments = format!("{arm} --expect-sidecars --heartbeat-us 1000");
        if let Some(end) = data.end(&arguments) {
            assert_whole(&end, &sum, arm);
            assert!(end["response"]["heartbeat_count"].is_u64(), "{end}");
        }
    }
}

#[test]
fn every_fix_finds_the_same_sum() {
    let data = Dataset::new("fixes");
    let sum = data.expected(|sidecar| sidecar.stride512_sum);
    let fixes = [
        "yield",
        "spawn-blocking",
        "populate-blocking",
        "uring-madvise",
        "willneed-ahead",
        "cachestat-gate",
    ];
    for fix in fixes {
        for rest in [
            "--exec async-ct",
            "--exec async-mt --window 64K --ahead 256K",
            "--exec async-ct --ahead 0",
        ] {
            let arguments = format!("--fix {fix} {rest} --expect-sidecars");
            data.end(&arguments).inspect(|end| assert_whole(end, &sum, &arguments));
        }
    }
    let end = data.end("--exec async-mt --fix block-in-place --expect-sidecars").unwrap();
    assert_whole(&end, &sum, "block-in-place");
}

#[test]
fn every_hint_finds_the_same_sum() {
    let data = Dataset::new("hints");
    let sum = data.expected(|sidecar| sidecar.stride512_sum);
    let advices = [
        "random",
        "sequential",
        "willneed",
        "willneed-pieces",
        "populate-read",
        "map-populate",
        "hugepage",
    ];
    let mut hints: Vec<String> =
        advices.iter().map(|advice| format!("--advice {advice}")).collect();
    hints.extend(
        ["nohugepage", "collapse", "cold", "pageout"]
            .iter()
            .map(|advice| format!("--advice {advice}")),
    );
    hints.extend(
        ["sequential", "random", "willneed", "noreuse"]
            .iter()
            .map(|advice| format!("--fadvise {advice}")),
    );
    hints.extend(
        ["--readahead", "--mlock", "--prefetch-distance 64 --prefetch-hint nta"].map(str::to_owned),
    );
    for hint in hints {
        for exec in ["sync1", "async-ct"] {
            let arguments = format!("--exec {exec} {hint} --expect-sidecars");
            data.end(&arguments).inspect(|end| assert_whole(end, &sum, &arguments));
        }
    }
}

#[test]
fn strides_and_discarded_sums_are_told_apart() {
    let data = Dataset::new("strides");
    let all = data.end("--stride 1 --expect-sidecars").unwrap();
    assert_whole(&all, &data.expected(|sidecar| sidecar.byte_sum), "--stride 1");
    let discarded = data.end("--discard-sum").unwrap();
    assert!(discarded["checksum"].is_null() && discarded["checksum_ok"].is_null());
    assert!(data.end("--stride 4096").unwrap()["checksum_ok"].is_null());
}

#[test]
fn a_changed_byte_is_a_wrong_answer() {
    let data = Dataset::new("changed");
    let mut bytes = std::fs::read(&data.files()[1]).unwrap();
    bytes[1024] ^= 1;
    std::fs::write(&data.files()[1], bytes).unwrap();
    for arm in ["--exec sync1", "--exec async-ct --io tokio-fs"] {
        let run = data.scan(&format!("{arm} --expect-sidecars"));
        let found = (run.code, &run.lines.last().unwrap()["checksum_ok"]);
        assert_eq!(found, (Some(1), &false.into()), "{}", run.stderr);
    }
}

#[test]
fn time_that_runs_out_leaves_a_part_and_a_heartbeat_that_waited() {
    let data = Dataset::new("time");
    let slow =
        "--compute-ns-per-page 200000 --max-seconds 0.1 --heartbeat-us 1000 --expect-sidecars";
    let blocked = data.end(&format!("--exec async-ct {slow}")).unwrap();
    assert!(
        blocked["covered_fraction"].as_f64().unwrap() < 1.0 && blocked["checksum_ok"].is_null()
    );
    assert!(blocked["response"]["heartbeat_max_us"].as_f64().unwrap() > 90_000.0, "{blocked}");
    let freed = data.end(&format!("--exec async-ct --fix spawn-blocking {slow}")).unwrap();
    let median = |end: &Value| end["response"]["heartbeat_p50_us"].as_f64().unwrap();
    assert!(median(&freed) < median(&blocked) / 2.0, "{freed}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let data = Dataset::new("refused");
    data.assert_refused("--exec sync1 --io tokio-fs", 2, "--exec async");
    data.assert_refused("--exec threads --fix yield", 2, "--fix");
    data.assert_refused("--exec async-ct --io read --fix yield", 2, "--io mmap");
    data.assert_refused("--io read --mlock", 2, "--io mmap");
    data.assert_refused("--exec async-ct --fix block-in-place", 2, "async-mt");
    data.assert_refused("--stride 4096 --expect-sidecars", 2, "--stride");
    data.assert_refused("--discard-sum --expect-sidecars", 2, "--discard-sum");
    data.assert_refused("--stride 500", 2, "power of two");
    data.assert_refused("--buf 1000", 2, "--buf");
    data.assert_refused("--buf 0", 2, "--buf");
    data.assert_refused("--buf 64Q", 2, "64Q");
    data.assert_refused("--window 100K", 2, "--window");
    std::fs::write(&data.files()[0], "").unwrap();
    data.assert_refused("", 1, "is empty");
}

#[test]
fn the_handshake_is_spoken() {
    let data = Dataset::new("handshake");
    let arguments = data.arguments("--exec async-ct --passes 2");
    let mut process = WorkloadProcess::start(PROGRAM, &arguments);
    process.read_line("ready");
    process.write("go\n");
    for pass in 0..2 {
        assert_eq!(process.read_line("sample")["iteration"], pass);
    }
    assert_eq!(process.read_line("end")["bytes"], 2 * SIZE_BYTES * FILES);
    assert!(process.is_running(), "its counters must still be there to be read");
    assert_eq!(process.close_and_wait(), (Some(0), String::new()));
}
