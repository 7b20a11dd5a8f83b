//! The disk and the file system under a folder: their kinds, and no name or serial number.

use rustix::fs::{major, minor};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Beginnings of the kernel's names of disks, and their kinds.
const KINDS: &[(&str, &str)] = &[
    ("nvme", "nvme"),
    ("vd", "virtio"),
    ("sd", "scsi"),
    ("xvd", "xen"),
    ("dm-", "device-mapper"),
    ("md", "md"),
    ("loop", "loop"),
    ("mmcblk", "mmc"),
    ("zram", "zram"),
    ("nbd", "nbd"),
    ("rbd", "rbd"),
    ("drbd", "drbd"),
];

/// The storage beneath a folder.
#[derive(Debug, Clone, Serialize)]
pub struct Storage {
    /// The file system's type, as the kernel spells it.
    pub filesystem: String,
    /// The number of the whole disk, `8:0`; None without a single disk.
    #[serde(skip)]
    pub disk: Option<String>,
    device: Option<Device>,
}

/// A disk; None if a setting is unknown.
#[derive(Debug, Clone, Serialize)]
struct Device {
    kind: &'static str,
    rotational: Option<bool>,
    logical_block_bytes: Option<u64>,
    scheduler: Option<String>,
    read_ahead_kb: Option<u64>,
    max_sectors_kb: Option<u64>,
    nr_requests: Option<u64>,
}

impl Storage {
    /// Examine the storage beneath the folder.
    pub fn beneath(folder: &Path) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let filesystem = filesystem(&mounts, &folder).unwrap_or_else(|| "unknown".to_owned());
        let disk = std::fs::metadata(&folder).ok().and_then(|found| disk_folder(found.dev()));
        let number = disk.as_ref().and_then(|path| text(path, "dev"));
        Self { filesystem, disk: number, device: disk.as_deref().map(device) }
    }
}

/// Return the folder in /sys of the whole disk that this device or partition belongs to.
fn disk_folder(device: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", major(device), minor(device));
    let folder = Path::new("/sys/dev/block").join(number).canonicalize().ok()?;
    if folder.join("partition").exists() {
        return folder.parent().map(Path::to_owned);
    }
    Some(folder)
}

fn device(folder: &Path) -> Device {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let kind = KINDS.iter().find(|(begins, _)| name.starts_with(begins)).map(|(_, kind)| *kind);
    let number = |file: &str| text(folder, file).and_then(|text| text.parse::<u64>().ok());
    Device {
        kind: kind.unwrap_or("other"),
        rotational: number("queue/rotational").map(|found| found == 1),
        logical_block_bytes: number("queue/logical_block_size"),
        scheduler: text(folder, "queue/scheduler").map(|text| chosen(&text)),
        read_ahead_kb: number("queue/read_ahead_kb"),
        max_sectors_kb: number("queue/max_sectors_kb"),
        nr_requests: number("queue/nr_requests"),
    }
}

fn text(folder: &Path, file: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(file)).ok()?.trim().to_owned())
}

/// Return the one in brackets: `none [mq-deadline] kyber`.
fn chosen(schedulers: &str) -> String {
    let inside = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(schedulers, |(name, _)| name).to_owned()
}

/// Return the type of the file system with the longest mount point above the folder,
/// `proc_pid_mountinfo(5)`.
fn filesystem(mounts: &str, folder: &Path) -> Option<String> {
    let fitting = mounts.lines().filter_map(|line| {
        let point = line.split(' ').nth(4)?.replace("\\040", " ");
        folder.starts_with(&point).then_some((point.len(), line))
    });
    let (_, line) = fitting.max_by_key(|(length, _)| *length)?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw
31 22 8:17 / /data rw,noatime shared:9 - xfs /dev/sdb1 rw
32 22 8:33 / /data/with\\040space rw - btrfs /dev/sdc1 rw
";

    #[test]
    fn the_nearest_mount_determines_the_file_system() {
        let of = |folder: &str| filesystem(MOUNTS, Path::new(folder)).unwrap();
        assert_eq!(
            [of("/"), of("/home"), of("/dev/shm/x"), of("/data/x")],
            ["ext4", "ext4", "tmpfs", "xfs"]
        );
        assert_eq!(of("/data/with space/x"), "btrfs");
        assert_eq!(of("/database"), "ext4", "a name with the same beginning is another folder");
        assert_eq!(filesystem("", Path::new("/")), None);
    }

    #[test]
    fn the_scheduler_in_use_stands_in_brackets() {
        assert_eq!([chosen("none [mq-deadline] kyber"), chosen("none")], ["mq-deadline", "none"]);
    }

    #[test]
    fn a_device_is_reported_by_kind_and_never_by_name() {
        let beneath = Storage::beneath(Path::new("/"));
        let reported = serde_json::json!(beneath);
        assert_eq!(
            reported.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["filesystem", "device"]
        );
        if let Some(folder) = std::fs::metadata("/").ok().and_then(|found| disk_folder(found.dev()))
        {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!reported.to_string().contains(&name), "{reported}");
        }
    }
}
