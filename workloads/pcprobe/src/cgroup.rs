//! The limits of the program's cgroup, v1 or v2, on the host or inside a container.
//!
//! A limit of any ancestor applies, so the least of all levels is reported.

use contract::cgroup::{figures, levels, memory_max_bytes};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// cgroup v1 expresses "no limit" by the largest number of pages, which is a little below 2^63.
const NONE_FROM: u64 = 1 << 62;

/// The limits; None if there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum CgroupLimits {
    /// The limits of a cgroup.
    Found {
        /// Version of the cgroup file system.
        version: u32,
        /// Hard limit of memory.
        memory_max_bytes: Option<u64>,
        /// Soft limit of memory.
        memory_high_bytes: Option<u64>,
        /// Limit of swap.
        memory_swap_max_bytes: Option<u64>,
        /// CPU time as a percentage of one CPU.
        cpu_quota_percent: Option<f64>,
        /// Limits of the disk.
        io: IoLimits,
    },
    /// No cgroup file system is visible.
    Missing {
        /// Null.
        version: Option<u32>,
        /// The reason.
        reason: &'static str,
    },
}

/// The limits of a disk, named as in io.max.
#[derive(Debug, Serialize)]
pub struct IoLimits {
    rbps: Option<u64>,
    wbps: Option<u64>,
    riops: Option<u64>,
    wiops: Option<u64>,
}

/// Return the limits; `disk` is the number (`8:0`) of the whole disk that is measured.
pub fn limits(disk: Option<&str>) -> CgroupLimits {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits_in(Path::new("/sys/fs/cgroup"), &own, disk)
}

fn limits_in(root: &Path, own: &str, disk: Option<&str>) -> CgroupLimits {
    let unified = own.lines().find_map(|line| line.strip_prefix("0::"));
    match unified {
        Some(path) if root.join("cgroup.controllers").exists() => v2(&levels(root, path), disk),
        _ if own.lines().any(|line| !line.starts_with("0::")) => v1(root, own, disk),
        _ => CgroupLimits::Missing {
            version: None,
            reason: "no cgroup file system is to be seen here",
        },
    }
}

fn v2(levels: &[PathBuf], disk: Option<&str>) -> CgroupLimits {
    let least_of = |file: &str| least(levels, file, |text| text.trim().parse().ok());
    let quotas = figures(levels, "cpu.max", |text| {
        let (quota, period) = text.trim().split_once(' ')?;
        Some(100.0 * quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let io = |key: &str| least(levels, "io.max", |text| io_max(text, disk?, key));
    CgroupLimits::Found {
        version: 2,
        memory_max_bytes: memory_max_bytes(levels),
        memory_high_bytes: least_of("memory.high"),
        memory_swap_max_bytes: least_of("memory.swap.max"),
        cpu_quota_percent: quotas.min_by(f64::total_cmp),
        io: IoLimits { rbps: io("rbps"), wbps: io("wbps"), riops: io("riops"), wiops: io("wiops") },
    }
}

fn v1(root: &Path, own: &str, disk: Option<&str>) -> CgroupLimits {
    let levels_of = |controller: &str| {
        let path = own.lines().find_map(|line| controller_path(line, controller)).unwrap_or("/");
        levels(&root.join(controller), path)
    };
    let bytes = |file: &str| least(&levels_of("memory"), file, below_none);
    let io = |kind: &str| {
        let file = format!("blkio.throttle.{kind}_device");
        least(&levels_of("blkio"), &file, |text| throttle(text, disk?))
    };
    let memory_max_bytes = bytes("memory.limit_in_bytes");
    CgroupLimits::Found {
        version: 1,
        memory_max_bytes,
        memory_high_bytes: None,
        memory_swap_max_bytes: swap_bytes(bytes("memory.memsw.limit_in_bytes"), memory_max_bytes),
        cpu_quota_percent: least_float_of_folders(&levels_of("cpu")),
        io: IoLimits {
            rbps: io("read_bps"),
            wbps: io("write_bps"),
            riops: io("read_iops"),
            wiops: io("write_iops"),
        },
    }
}

/// v1 limits memory and swap together.
fn swap_bytes(both: Option<u64>, memory: Option<u64>) -> Option<u64> {
    Some(both?.saturating_sub(memory?))
}

/// Return the path of a controller in a line such as `4:cpu,cpuacct:/docker/...`.
fn controller_path<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    controllers.split(',').any(|name| name == controller).then_some(path)
}

fn least(levels: &[PathBuf], file: &str, read: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    figures(levels, file, read).min()
}

fn least_float_of_folders(levels: &[PathBuf]) -> Option<f64> {
    let number = |folder: &Path, file: &str| -> Option<f64> {
        std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
    };
    let quota = |folder: &PathBuf| {
        let quota = number(folder, "cpu.cfs_quota_us")?;
        (quota > 0.0).then_some(100.0 * quota / number(folder, "cpu.cfs_period_us")?)
    };
    levels.iter().filter_map(quota).min_by(f64::total_cmp)
}

fn below_none(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NONE_FROM)
}

/// Return one key of the disk's line in io.max; None if it is `max`.
fn io_max(text: &str, disk: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(disk)?.strip_prefix(' '))?;
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// Return the limit of the disk in a file of v1's blkio.
fn throttle(text: &str, disk: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(disk)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Tree(PathBuf);

    impl Tree {
        fn new(test: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("pcprobe-{test}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_tightest_level_of_v2_counts() {
        let tree = Tree::new(
            "v2",
            &[
                ("cgroup.controllers", "cpu io memory\n"),
                ("a.slice/memory.max", "1073741824\n"),
                (
                    "a.slice/io.max",
                    "8:16 rbps=1 wbps=max riops=max wiops=max\n8:1 rbps=9 wbps=max riops=500 wiops=max\n",
                ),
                ("a.slice/b.scope/memory.max", "max\n"),
                ("a.slice/b.scope/cpu.max", "150000 100000\n"),
                ("a.slice/b.scope/memory.swap.max", "0\n"),
            ],
        );
        let found = json!(limits_in(&tree.0, "0::/a.slice/b.scope\n", Some("8:1")));
        assert_eq!(found["version"], 2);
        assert_eq!(found["memory_max_bytes"], 1_073_741_824);
        assert_eq!(found["memory_swap_max_bytes"], 0);
        assert_eq!(found["cpu_quota_percent"], 150.0);
        assert_eq!(found["io"], json!({"rbps": 9, "wbps": null, "riops": 500, "wiops": null}));
        assert!(json!(limits_in(&tree.0, "0::/a.slice/b.scope\n", None))["io"]["rbps"].is_null());
    }

    #[test]
    fn a_container_sees_its_own_limits_at_the_root() {
        let tree = Tree::new("inside", &[("cgroup.controllers", ""), ("memory.max", "5000\n")]);
        for own in ["0::/\n", "0::/../other\n", "0::/system.slice/docker-1.scope\n"] {
            assert_eq!(json!(limits_in(&tree.0, own, None))["memory_max_bytes"], 5000, "{own}");
        }
        let old = Tree::new("inside-v1", &[("memory/memory.limit_in_bytes", "7000\n")]);
        assert_eq!(
            json!(limits_in(&old.0, "4:memory:/docker/1\n", None))["memory_max_bytes"],
            7000
        );
    }

    #[test]
    fn v1_has_other_names_and_another_none() {
        let tree = Tree::new(
            "v1",
            &[
                ("memory/docker/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/docker/one/memory.limit_in_bytes", "2000\n"),
                ("memory/docker/one/memory.memsw.limit_in_bytes", "5000\n"),
                ("cpu/docker/one/cpu.cfs_quota_us", "50000\n"),
                ("cpu/docker/one/cpu.cfs_period_us", "100000\n"),
                ("cpu/docker/cpu.cfs_quota_us", "-1\n"),
                ("blkio/docker/one/blkio.throttle.read_iops_device", "8:16 7\n8:1 500\n"),
            ],
        );
        let own = "4:memory:/docker/one\n2:cpu,cpuacct:/docker/one\n1:blkio:/docker/one\n0::/\n";
        let found = json!(limits_in(&tree.0, own, Some("8:1")));
        assert_eq!(found["version"], 1);
        assert_eq!(found["memory_max_bytes"], 2000);
        assert_eq!(found["memory_swap_max_bytes"], 3000);
        assert_eq!(found["cpu_quota_percent"], 50.0);
        assert_eq!(found["io"], json!({"rbps": null, "wbps": null, "riops": 500, "wiops": null}));
        let unlimited = json!(limits_in(&tree.0, "4:memory:/docker\n", None));
        assert!(
            unlimited["memory_max_bytes"].is_null() && unlimited["cpu_quota_percent"].is_null()
        );
    }

    #[test]
    fn where_nothing_is_visible_there_is_a_reason() {
        assert!(json!(limits_in(Path::new("/nowhere"), "", None))["reason"].is_string());
    }
}
