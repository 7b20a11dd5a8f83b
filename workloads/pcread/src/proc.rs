//! What the kernel tells of this process's mappings, and of interrupts that took mappings away from CPUs.

use serde_json::{json, Value};

/// Names of `/proc/self/smaps_rollup` (`proc_pid_smaps(5)`) that say in which kind of page memory is mapped.
const KINDS: [(&str, &str); 4] = [
    ("rss_bytes", "Rss:"),
    ("anon_huge_pages_bytes", "AnonHugePages:"),
    ("file_pmd_mapped_bytes", "FilePmdMapped:"),
    ("shmem_pmd_mapped_bytes", "ShmemPmdMapped:"),
];

/// This process's mappings all together, bytes by kind; null where the kernel does not tell.
#[must_use]
pub fn smaps_rollup() -> Value {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    KINDS
        .iter()
        .map(|(name, key)| ((*name).to_owned(), json!(kilobytes(&text, key).map(|kb| kb * 1024))))
        .collect()
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// TLB shootdowns of the whole machine since it started, all CPUs, `/proc/interrupts`; none where the kernel counts
/// none, as on arm64, which needs no interrupts for it.
#[must_use]
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
    fn kinds_of_pages_are_bytes() {
        assert_eq!(kilobytes("Rss:  12 kB\nAnonHugePages:    2048 kB\n", "AnonHugePages:"), Some(2048));
        assert_eq!(kilobytes("Rss:  12 kB\n", "FilePmdMapped:"), None);
        assert!(smaps_rollup()["rss_bytes"].as_u64() > Some(0));
    }
}
