//! Datasets made by the real program on a real file system.

use serde_json::Value;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const SIZE_BYTES: u64 = (2 << 20) + 5;

struct Folder(testbed::Folder);

impl Folder {
    fn new(test: &str) -> Self {
        Self(testbed::Folder::new(env!("CARGO_TARGET_TMPDIR"), test))
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn make(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcgen"));
        command.arg("--out").arg(self.data()).args(arguments.split_whitespace());
        command
    }

    fn verify(&self) -> Output {
        Command::new(env!("CARGO_BIN_EXE_pcgen")).arg("--verify").arg(self.data()).output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&*self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn end(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_refused(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.lines().count() == 1 && stderr.contains(words), "{stderr}");
}

#[test]
fn what_is_made_is_whole_and_verified() {
    let folder = Folder::new("whole");
    let made = end(&folder.make(&format!("--size-bytes {SIZE_BYTES} --seed 9")));
    assert_eq!((&made["type"], &made["reused"]), (&"end".into(), &false.into()));
    assert_eq!(folder.names(), ["data", "data.json"]);
    let status = std::fs::metadata(folder.data()).unwrap();
    assert_eq!(status.len(), SIZE_BYTES);
    assert!(status.blocks() * 512 >= SIZE_BYTES);
    let sum: u64 = std::fs::read(folder.data()).unwrap().iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(made["byte_sum"], sum.to_string());
    let bytes = std::fs::read(folder.data()).unwrap();
    let strided: u64 = (0..bytes.len()).step_by(512).map(|place| u64::from(bytes[place])).sum();
    let sidecar: Value =
        serde_json::from_slice(&std::fs::read(folder.0.join("data.json")).unwrap()).unwrap();
    assert_eq!(sidecar["stride512_sum"], strided.to_string());
    assert_eq!(end(&folder.verify())["verified"], true);
}

#[test]
fn the_same_request_does_nothing_the_second_time() {
    let folder = Folder::new("again");
    let request = format!("--size-bytes {SIZE_BYTES}");
    end(&folder.make(&request));
    let inode = std::fs::metadata(folder.data()).unwrap().ino();
    assert_eq!(end(&folder.make(&request))["reused"], true);
    assert_eq!(std::fs::metadata(folder.data()).unwrap().ino(), inode);
}

#[test]
fn another_dataset_is_replaced_only_when_forced() {
    let folder = Folder::new("force");
    end(&folder.make("--size-bytes 5000 --seed 1"));
    let before = std::fs::read(folder.data()).unwrap();
    assert_refused(&folder.make("--size-bytes 5000 --seed 2"), 1, "--force");
    assert_eq!(std::fs::read(folder.data()).unwrap(), before);
    assert_eq!(end(&folder.make("--size-bytes 5000 --seed 2 --force"))["reused"], false);
    assert_ne!(std::fs::read(folder.data()).unwrap(), before);
    assert_eq!(end(&folder.verify())["verified"], true);
}

#[test]
fn zeros_are_written_and_not_left_out() {
    let folder = Folder::new("zero");
    assert_eq!(
        end(&folder.make(&format!("--size-bytes {SIZE_BYTES} --fill zero")))["byte_sum"],
        "0"
    );
    assert!(std::fs::metadata(folder.data()).unwrap().blocks() * 512 >= SIZE_BYTES);
}

#[test]
fn a_changed_byte_is_found_where_it_is() {
    let folder = Folder::new("changed");
    end(&folder.make(&format!("--size-bytes {SIZE_BYTES}")));
    let mut file = std::fs::OpenOptions::new().write(true).open(folder.data()).unwrap();
    let byte = std::fs::read(folder.data()).unwrap()[1_500_000] ^ 1;
    file.seek(SeekFrom::Start(1_500_000)).unwrap();
    file.write_all(&[byte]).unwrap();
    assert_refused(&folder.verify(), 1, "at byte 1048576");
}

#[test]
fn swapped_bytes_are_found_though_every_sum_agrees() {
    let folder = Folder::new("swapped");
    end(&folder.make("--size-bytes 5000"));
    let mut bytes = std::fs::read(folder.data()).unwrap();
    let other = (2..512).find(|place| bytes[*place] != bytes[1]).unwrap();
    bytes.swap(1, other);
    std::fs::write(folder.data(), bytes).unwrap();
    assert_refused(&folder.verify(), 1, "CRC-32C");
}

#[test]
fn a_wrong_sum_of_every_512th_byte_is_found() {
    let folder = Folder::new("stride");
    end(&folder.make("--size-bytes 5000"));
    let path = folder.0.join("data.json");
    let mut sidecar: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    sidecar["stride512_sum"] = "1".into();
    std::fs::write(&path, sidecar.to_string()).unwrap();
    assert_refused(&folder.verify(), 1, "512th");
}

#[test]
fn a_file_with_a_hole_is_neither_reused_nor_verified() {
    let folder = Folder::new("hole");
    let request = format!("--size-bytes {SIZE_BYTES} --fill zero");
    end(&folder.make(&request));
    std::fs::remove_file(folder.data()).unwrap();
    std::fs::File::create(folder.data()).unwrap().set_len(SIZE_BYTES).unwrap();
    assert_refused(&folder.verify(), 1, "allocated");
    assert_refused(&folder.make(&request), 1, "--force");
}

#[test]
fn a_disk_too_small_is_one_sentence_and_leaves_nothing() {
    let folder = Folder::new("full");
    assert_refused(&folder.make("--size-bytes 1000000000000000000"), 1, "too full");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn a_write_refused_half_way_leaves_nothing() {
    let folder = Folder::new("limit");
    let mut command = folder.command(&format!("--size-bytes {SIZE_BYTES}"));
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    let lower = move || {
        // SAFETY: setrlimit is async-signal-safe and only reads its argument.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call and nothing else.
    unsafe { command.pre_exec(lower) };
    assert_refused(&command.output().unwrap(), 1, "File too large");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn a_part_file_left_by_a_killed_writer_is_written_over() {
    let folder = Folder::new("stale");
    std::fs::write(folder.0.join("data.part"), vec![1; 9_000_000]).unwrap();
    end(&folder.make("--size-bytes 5000"));
    assert_eq!(end(&folder.verify())["bytes"], 5000);
    assert_eq!(folder.names(), ["data", "data.json"]);
}

#[test]
fn a_second_writer_is_refused_and_does_no_harm() {
    let folder = Folder::new("busy");
    let part = std::fs::File::create(folder.0.join("data.part")).unwrap();
    // SAFETY: the descriptor is open.
    let locked = unsafe { libc::flock(part.as_raw_fd(), libc::LOCK_EX) } == 0;
    assert!(locked);
    assert_refused(&folder.make("--size-bytes 5000"), 1, "another process");
    assert_eq!(folder.names(), ["data.part"]);
}

#[test]
fn bad_arguments_and_missing_folders_are_told_apart() {
    let folder = Folder::new("bad");
    assert_refused(&folder.make("--size-bytes 0"), 2, "--size-bytes");
    assert_refused(&folder.make("--size-bytes 10 --fill noise"), 2, "noise");
    assert_refused(&folder.make(""), 2, "--size-bytes");
    let output = Command::new(env!("CARGO_BIN_EXE_pcgen"))
        .args(["--out", "/nowhere/at/all", "--size-bytes", "5"])
        .output();
    assert_refused(&output.unwrap(), 1, "/nowhere/at");
    assert_refused(&folder.verify(), 1, "data.json");
}

#[test]
fn an_index_is_whole_and_verified_and_no_random_file() {
    let folder = Folder::new("index");
    assert_refused(&folder.make("--fill index --size-bytes 5000"), 2, "buckets of 4096 bytes");
    assert_eq!(folder.names(), Vec::<String>::new());
    end(&folder.make("--fill index --size-bytes 2097152 --seed 3"));
    assert_eq!(end(&folder.verify())["verified"], true);
    assert_eq!(end(&folder.make("--fill index --size-bytes 2097152 --seed 3"))["reused"], true);
    assert_refused(&folder.make("--fill random --size-bytes 2097152 --seed 3"), 1, "--force");
    let bytes = std::fs::read(folder.data()).unwrap();
    assert!(bytes.chunks(4096).all(|bucket| bucket.starts_with(b"pcindex1")));
}
