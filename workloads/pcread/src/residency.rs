//! The file's bytes in the page cache before and after, and the page cache of the machine.

use contract::listed_sizes::ListedSizes;
use contract::page_cache::{cachestat_of_part, page_bytes, resident_bytes};
use serde::Serialize;
use std::fs::File;
use std::path::Path;

/// The number of characters in the bar that vmtouch prints.
const BUCKETS: u64 = 60;

/// The lines of `/proc/meminfo` that free(1) adds up as buff/cache.
const BUFF_CACHE: [&str; 3] = ["Buffers", "Cached", "SReclaimable"];

/// The state at one moment; None if the kernel does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency {
    file_bytes: Option<u64>,
    buckets: Option<u64>,
    buff_cache_bytes: Option<u64>,
}

/// The state at three moments of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResidencySamples {
    /// Before the set-up.
    pub open: Residency,
    /// After the set-up.
    pub ready: Residency,
    /// After the last pass.
    pub end: Residency,
}

/// Figures of the closing line.
#[derive(Debug, Default, Serialize)]
pub struct ResidencyFigures {
    resident_open_bytes: Option<u64>,
    resident_ready_bytes: Option<u64>,
    resident_end_bytes: Option<u64>,
    resident_end_fraction: Option<f64>,
    resident_end_buckets: Option<u64>,
    setup_evicted_bytes: Option<u64>,
    buff_cache_growth_bytes: Option<i64>,
}

impl Residency {
    /// Examine the first `size_bytes` of the file, and the machine.
    pub fn of(path: &Path, size_bytes: u64) -> Self {
        let parts = File::open(path).ok().and_then(|file| in_buckets(&file, size_bytes));
        Self {
            file_bytes: parts
                .as_ref()
                .map(|parts| parts.iter().sum())
                .or_else(|| by_mincore(path, size_bytes)),
            buckets: parts.map(|parts| parts.iter().filter(|bytes| **bytes > 0).count() as u64),
            buff_cache_bytes: ListedSizes::of_machine().and_then(|sizes| buff_cache(&sizes)),
        }
    }
}

impl ResidencySamples {
    /// Return the file's bytes that the set-up dropped from the page cache; None if the kernel does
    /// not tell.
    pub fn evicted_bytes(&self) -> Option<u64> {
        self.open
            .file_bytes
            .zip(self.ready.file_bytes)
            .map(|(open, ready)| open.saturating_sub(ready))
    }

    /// Return the figures for a working set of this length.
    pub fn figures(&self, size_bytes: u64) -> ResidencyFigures {
        let caches = self.end.buff_cache_bytes.zip(self.ready.buff_cache_bytes);
        let growth = caches.map(|(end, ready)| i128::from(end) - i128::from(ready));
        ResidencyFigures {
            resident_open_bytes: self.open.file_bytes,
            resident_ready_bytes: self.ready.file_bytes,
            resident_end_bytes: self.end.file_bytes,
            resident_end_fraction: self
                .end
                .file_bytes
                .map(|bytes| bytes as f64 / size_bytes as f64),
            resident_end_buckets: self.end.buckets,
            setup_evicted_bytes: self.evicted_bytes(),
            buff_cache_growth_bytes: growth.and_then(|bytes| i64::try_from(bytes).ok()),
        }
    }
}

/// Return the bytes of each sixtieth of the file that are in the page cache, cachestat(2).
fn in_buckets(file: &File, size_bytes: u64) -> Option<Vec<u64>> {
    let pages = size_bytes.div_ceil(page_bytes() as u64);
    let bound = |bucket: u64| pages * bucket / BUCKETS * page_bytes() as u64;
    let part = |bucket: u64| {
        let (start, end) = (bound(bucket), bound(bucket + 1));
        if start == end {
            return Some(0); // a length of 0 would mean all the rest
        }
        cachestat_of_part(file, start, end - start)
            .ok()
            .map(|found| found.cache_pages * page_bytes() as u64)
    };
    (0..BUCKETS).map(part).collect()
}

fn by_mincore(path: &Path, size_bytes: u64) -> Option<u64> {
    resident_bytes(&File::open(path).ok()?, usize::try_from(size_bytes).ok()?)
}

fn buff_cache(sizes: &ListedSizes) -> Option<u64> {
    BUFF_CACHE.iter().map(|name| sizes.bytes(name)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buff_cache_is_what_free_adds_up() {
        let text =
            "MemTotal: 9 kB\nBuffers:   1 kB\nCached:  20 kB\nSwapCached: 7 kB\nSReclaimable:  300 kB\n";
        assert_eq!(buff_cache(&text.into()), Some(321 * 1024));
        assert_eq!(buff_cache(&"Buffers: 1 kB\n".into()), None);
    }

    #[test]
    fn buckets_are_the_whole_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let size_bytes = std::fs::read(&path).unwrap().len() as u64;
        let (file, found) = (File::open(&path).unwrap(), Residency::of(&path, size_bytes));
        assert!(found.buff_cache_bytes > Some(0));
        assert_eq!(found.buckets.unwrap_or(1), 1, "one page lies in one part");
        if let Some(parts) = in_buckets(&file, size_bytes) {
            assert_eq!(parts.len(), 60);
            assert_eq!(parts.iter().sum::<u64>(), page_bytes() as u64, "one page, just read");
        }
    }
}
