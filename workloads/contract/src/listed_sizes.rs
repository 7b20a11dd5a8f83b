//! Sizes that the kernel lists: memory of a process, `/proc/PID/smaps_rollup` (`proc_pid_smaps(5)`,
//! Linux 4.14), and of the machine, `/proc/meminfo`. It counts in KiB, although it writes kB.

use std::fs::read_to_string;

/// Lines such as `Rss:  884 kB`, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSizes(String);

impl From<&str> for ListedSizes {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl ListedSizes {
    /// Read those of the machine; None if the kernel refuses.
    #[must_use]
    pub fn of_machine() -> Option<Self> {
        read_to_string("/proc/meminfo").ok().map(Self)
    }

    /// Read the sums over all mappings of a process, or of this one; None if the kernel refuses.
    #[must_use]
    pub fn of(pid: Option<u32>) -> Option<Self> {
        let who = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        read_to_string(format!("/proc/{who}/smaps_rollup")).ok().map(Self)
    }

    /// Return one of the lines in bytes, by the kernel's name (`Rss`, `Anonymous`, `MemTotal`).
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let rollup = ListedSizes(
            "00400000-7ffc [rollup]\nRss:   884 kB\nPss:  385 kB\nPss_Anon: 68 kB\n".into(),
        );
        assert_eq!(
            ["Rss", "Pss", "Pss_A", "Swap"].map(|name| rollup.bytes(name)),
            [Some(905_216), Some(394_240), None, None]
        );
    }

    #[test]
    fn memory_that_was_written_is_seen() {
        let before = ListedSizes::of(None).unwrap().bytes("Anonymous").unwrap();
        // Far more than other tests of this process free meanwhile.
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = ListedSizes::of(Some(std::process::id())).unwrap().bytes("Anonymous").unwrap();
        assert!(after >= before + (32 << 20), "{before} {after} {}", block.len());
    }
}
