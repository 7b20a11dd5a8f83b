//! How much memory a process has, by `/proc/PID/smaps_rollup` (`proc_pid_smaps(5)`, Linux 4.14).

use std::fs::read_to_string;

/// The sums over all mappings of a process, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollup(String);

impl Rollup {
    /// Of a process, or of oneself; none where the kernel would not say.
    #[must_use]
    pub fn of(pid: Option<u32>) -> Option<Self> {
        let who = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        read_to_string(format!("/proc/{who}/smaps_rollup")).ok().map(Self)
    }

    /// One of its lines under the kernel's own name (`Rss`, `Pss`, `Anonymous`), in bytes.
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
        let rollup = Rollup("00400000-7ffc [rollup]\nRss:   884 kB\nPss:  385 kB\nPss_Anon: 68 kB\n".into());
        assert_eq!(
            ["Rss", "Pss", "Pss_A", "Swap"].map(|name| rollup.bytes(name)),
            [Some(905_216), Some(394_240), None, None]
        );
    }

    #[test]
    fn memory_that_was_written_is_seen() {
        let before = Rollup::of(None).unwrap().bytes("Anonymous").unwrap();
        let block = std::hint::black_box(vec![1_u8; 8 << 20]);
        let after = Rollup::of(Some(std::process::id())).unwrap().bytes("Anonymous").unwrap();
        assert!(after >= before + (7 << 20), "{before} {after} {}", block.len());
    }
}
