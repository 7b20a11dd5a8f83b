//! What the kernel tells of this process's mappings, and of interrupts that took mappings away from CPUs.

use contract::smaps::Rollup;
use serde_json::{json, Value};

/// Names of `/proc/self/smaps_rollup` (`proc_pid_smaps(5)`) that say in which kind of page memory is mapped.
const KINDS: [(&str, &str); 4] = [
    ("rss_bytes", "Rss"),
    ("anon_huge_pages_bytes", "AnonHugePages"),
    ("file_pmd_mapped_bytes", "FilePmdMapped"),
    ("shmem_pmd_mapped_bytes", "ShmemPmdMapped"),
];

/// This process's mappings all together, bytes by kind; null where the kernel does not tell.
#[must_use]
pub fn smaps_rollup() -> Value {
    let rollup = Rollup::of(None);
    let bytes = |kind: &str| rollup.as_ref().and_then(|rollup| rollup.bytes(kind));
    KINDS.iter().map(|(name, kind)| ((*name).to_owned(), json!(bytes(kind)))).collect()
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
    fn every_kind_of_page_has_its_name_and_some_are_mapped() {
        let found = smaps_rollup();
        assert!(found["rss_bytes"].as_u64() > Some(0));
        assert_eq!(found.as_object().unwrap().len(), KINDS.len());
    }
}
