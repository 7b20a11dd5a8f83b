//! The kernel's figures about this process's mappings, and about interrupts that removed mappings
//! from CPUs.

use contract::listed_sizes::ListedSizes;
use serde::Serialize;

/// Bytes of this process's mappings by kind of page, `/proc/self/smaps_rollup`
/// (`proc_pid_smaps(5)`); None if the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MappedBytes {
    /// In memory.
    pub rss_bytes: Option<u64>,
    /// Anonymous huge pages.
    pub anon_huge_pages_bytes: Option<u64>,
    /// Huge pages of files.
    pub file_pmd_mapped_bytes: Option<u64>,
    /// Huge pages of shared memory.
    pub shmem_pmd_mapped_bytes: Option<u64>,
}

impl MappedBytes {
    /// Read them.
    pub fn of_this_process() -> Self {
        let rollup = ListedSizes::of(None);
        let bytes = |kind: &str| rollup.as_ref().and_then(|rollup| rollup.bytes(kind));
        Self {
            rss_bytes: bytes("Rss"),
            anon_huge_pages_bytes: bytes("AnonHugePages"),
            file_pmd_mapped_bytes: bytes("FilePmdMapped"),
            shmem_pmd_mapped_bytes: bytes("ShmemPmdMapped"),
        }
    }
}

/// Return the TLB shootdowns of all CPUs since the machine started, `/proc/interrupts`. None if the
/// kernel does not count them, as on arm64, which needs no interrupts for this.
pub fn tlb_shootdowns() -> Option<u64> {
    shootdowns_in(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

fn shootdowns_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"))?;
    Some(line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shootdowns_are_summed_over_the_cpus() {
        let text =
            "           CPU0       CPU1\n  0:  9  0  IO-APIC\nTLB:        100         23   TLB shootdowns\n";
        assert_eq!(shootdowns_in(text), Some(123));
        assert_eq!(shootdowns_in("CPU0\n 0: 9\n"), None);
    }

    #[test]
    fn some_memory_is_mapped() {
        assert!(MappedBytes::of_this_process().rss_bytes > Some(0));
    }
}
