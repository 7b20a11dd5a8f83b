//! The memory that the process may use, and the size of a cache that fits.

use contract::{cgroup, Failure};
use std::path::Path;

/// Fraction left for the program itself, its stacks, and the kernel's share of a cage.
const SPARED_FRACTION: u64 = 8;
/// The least that is left for these.
const SPARED_BYTES: u64 = 768 << 10;

/// Size of the process's own cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// This many bytes.
    Bytes(u64),
    /// As large as the memory limit of the process's cgroup permits.
    Cage,
}

/// Parse a size on the command line.
///
/// # Errors
/// A sentence if the text is neither a number nor `cage`.
pub fn cache_size(text: &str) -> Result<CacheSize, String> {
    if text == "cage" {
        return Ok(CacheSize::Cage);
    }
    text.parse()
        .map(CacheSize::Bytes)
        .map_err(|_| "neither a number of bytes nor `cage`".to_owned())
}

impl CacheSize {
    /// Return the size of the cache, including its tables, all threads together. Fails if it shall
    /// fit the cage and there is none.
    pub fn bytes(self) -> Result<usize, Failure> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Cage => memory_max_bytes().map(fitting).ok_or_else(|| {
                let reason = "no memory.max to size the cache by: give --cache-bytes a number";
                Failure::CannotHere(reason.to_owned())
            })?,
        };
        usize::try_from(bytes).map_err(|cause| Failure::CannotHere(cause.to_string()))
    }
}

fn fitting(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_sub(SPARED_BYTES.max(limit_bytes / SPARED_FRACTION))
}

/// Return the least `memory.max` of the process's cgroup and its ancestors, cgroup v2; None without
/// a limit.
fn memory_max_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    cgroup::memory_max_bytes(&cgroup::levels(Path::new("/sys/fs/cgroup"), own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_leaves_room_for_the_program() {
        assert_eq!(fitting(1 << 30), (1 << 30) / 8 * 7);
        assert_eq!(fitting(2 << 20), (2 << 20) - (768 << 10));
        assert_eq!(fitting(1000), 0);
    }
}
