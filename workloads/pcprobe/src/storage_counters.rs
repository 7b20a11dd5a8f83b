//! Proof that the disk answered and not memory: the kernel counts the bytes that a process caused
//! storage to transfer.

use crate::phase::Phase;

/// Least fraction of a phase's bytes that storage must transfer. A signal or the end may cut off
/// the rest.
const LEAST_SHARE: f64 = 0.95;

/// Bytes that storage transferred for this process and its ended children: `/proc/self/io`,
/// `proc_pid_io(5)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageCounters {
    read_bytes: u64,
    write_bytes: u64,
}

/// Read the counters; None if the kernel does not count.
pub fn read() -> Option<StorageCounters> {
    parse(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn parse(text: &str) -> Option<StorageCounters> {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(StorageCounters { read_bytes: field("read_bytes:")?, write_bytes: field("write_bytes:")? })
}

/// Return the bytes of a phase that went to storage; None if they were not counted.
pub fn moved_bytes(
    phase: &Phase,
    before: Option<StorageCounters>,
    after: Option<StorageCounters>,
) -> Option<u64> {
    let (before, after) = (before?, after?);
    if phase.writes {
        return Some(after.write_bytes.saturating_sub(before.write_bytes));
    }
    Some(after.read_bytes.saturating_sub(before.read_bytes))
}

/// Return the reason why a phase's figures may be those of memory; None if they are those of the
/// disk.
pub fn doubt(
    asked_bytes: u64,
    moved_bytes: Option<u64>,
    direct: bool,
    filesystem: &str,
) -> Option<String> {
    if filesystem == "zfs" {
        return Some(
            "zfs keeps a cache of its own beneath its files, and counts what it answers as read"
                .to_owned(),
        );
    }
    match moved_bytes {
        Some(moved) if moved as f64 >= LEAST_SHARE * asked_bytes as f64 => None,
        Some(moved) => Some(format!(
            "the kernel counted {moved} of {asked_bytes} bytes at storage: memory answered, or {filesystem} does not count"
        )),
        None if direct => None,
        None => Some("without O_DIRECT and without /proc/self/io nobody can tell whether memory answered".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::phases;
    use std::time::Duration;

    const TEXT: &str = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 1\n";

    #[test]
    fn what_went_to_storage_is_the_difference() {
        let before = parse(TEXT);
        assert_eq!(before, Some(StorageCounters { read_bytes: 4096, write_bytes: 512 }));
        let after = Some(StorageCounters { read_bytes: 8192, write_bytes: 1024 });
        let phases = phases(Duration::from_secs(60));
        assert_eq!(moved_bytes(&phases[0], before, after), Some(512));
        assert_eq!(moved_bytes(&phases[1], before, after), Some(4096));
        assert_eq!(moved_bytes(&phases[1], None, after), None);
        assert_eq!(parse("rchar: 9\n"), None);
    }

    #[test]
    fn what_memory_answered_is_doubted() {
        assert_eq!(doubt(1000, Some(1000), true, "ext4"), None);
        assert!(doubt(1000, Some(0), true, "tmpfs").unwrap().contains("0 of 1000"));
        assert!(doubt(1000, Some(900), true, "ext4").is_some());
        assert_eq!(doubt(1000, None, true, "ext4"), None, "the file system has O_DIRECT");
        assert!(doubt(1000, None, false, "ext4").is_some());
        assert!(doubt(1000, Some(1000), true, "zfs").is_some());
    }
}
