//! How much memory the process may use, and so how large a cache of its own may be.

use crate::arguments::{CacheSize, Plan};
use contract::Failure;
use std::path::{Path, PathBuf};

/// Left to everything that is not cache: the program itself, its stacks, and the kernel's own share of a cage.
const SPARED_FRACTION: u64 = 8;
/// The same, at least.
const SPARED_BYTES: u64 = 768 << 10;

/// How large the cache is to be, tables included, all threads together.
///
/// # Errors
/// When it is to fit the cage and there is none.
pub fn cache_bytes(plan: &Plan) -> Result<usize, Failure> {
    let bytes = match plan.cache {
        CacheSize::Bytes(bytes) => bytes,
        CacheSize::Cage => {
            let limit = memory_max_bytes().ok_or_else(|| {
                Failure::CannotHere(
                    "no memory.max to size the cache by: give --cache-bytes a number".to_owned(),
                )
            })?;
            fitting(limit)
        }
    };
    usize::try_from(bytes).map_err(|cause| Failure::CannotHere(cause.to_string()))
}

fn fitting(limit_bytes: u64) -> u64 {
    limit_bytes.saturating_sub(SPARED_BYTES.max(limit_bytes / SPARED_FRACTION))
}

/// The least `memory.max` of the process's cgroup and all above it, cgroup v2; none where there is no limit.
fn memory_max_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    least_limit(Path::new("/sys/fs/cgroup"), own)
}

fn least_limit(root: &Path, own: &str) -> Option<u64> {
    let mut folder: PathBuf = root.join(own);
    let mut least = None;
    while folder.starts_with(root) {
        let text = std::fs::read_to_string(folder.join("memory.max")).unwrap_or_default();
        least = [least, text.trim().parse::<u64>().ok()].into_iter().flatten().min();
        if !folder.pop() {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_above_counts() {
        let root = std::env::temp_dir().join(format!("pcread-cage-{}", std::process::id()));
        let leaf = root.join("a.slice/b.scope");
        std::fs::create_dir_all(&leaf).unwrap();
        assert_eq!(least_limit(&root, "a.slice/b.scope"), None);
        std::fs::write(leaf.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.join("a.slice/memory.max"), "5000\n").unwrap();
        assert_eq!(least_limit(&root, "a.slice/b.scope"), Some(5000));
        std::fs::write(leaf.join("memory.max"), "4000\n").unwrap();
        assert_eq!(least_limit(&root, "a.slice/b.scope"), Some(4000));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_cache_leaves_room_for_the_program() {
        assert_eq!(fitting(1 << 30), (1 << 30) / 8 * 7);
        assert_eq!(fitting(2 << 20), (2 << 20) - (768 << 10));
        assert_eq!(fitting(1000), 0);
    }
}
