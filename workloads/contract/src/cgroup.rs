//! The limits of a cgroup: of all levels above it, the least applies.

use std::path::{Path, PathBuf};

/// Return the folder of a cgroup and its ancestors, as far as they are visible. In a container the
/// path may be missing in the mounted file system. Its root is then the container's cgroup.
#[must_use]
pub fn levels(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    let own = if own.is_dir() && !path.contains("..") { own } else { root.to_owned() };
    own.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

/// Return what `read` finds in this file of each level that has one.
pub fn figures<'a, T: 'a>(
    levels: &'a [PathBuf],
    file: &'a str,
    read: impl Fn(&str) -> Option<T> + 'a,
) -> impl Iterator<Item = T> + 'a {
    levels.iter().filter_map(move |folder| read(&std::fs::read_to_string(folder.join(file)).ok()?))
}

/// Return the least `memory.max` of these levels, cgroup v2; None without a limit.
#[must_use]
pub fn memory_max_bytes(levels: &[PathBuf]) -> Option<u64> {
    figures(levels, "memory.max", |text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_above_counts() {
        let root = std::env::temp_dir().join(format!("cgroup-levels-{}", std::process::id()));
        let leaf = root.join("a.slice/b.scope");
        std::fs::create_dir_all(&leaf).unwrap();
        let limit = || memory_max_bytes(&levels(&root, "a.slice/b.scope"));
        assert_eq!(limit(), None);
        std::fs::write(leaf.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.join("a.slice/memory.max"), "5000\n").unwrap();
        assert_eq!(limit(), Some(5000));
        std::fs::write(leaf.join("memory.max"), "4000\n").unwrap();
        assert_eq!(limit(), Some(4000));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
