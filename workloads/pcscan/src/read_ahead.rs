//! The device's read-ahead, which limits what one WILLNEED or readahead(2) starts to read.

use rustix::fs::{major, minor};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Linux's default, for devices without this setting (tmpfs, network file systems).
const DEFAULT_BYTES: usize = 128 << 10;

/// Return `read_ahead_kb` of the device behind the file, in bytes; for a partition that of its
/// disk, sysfs(5). For a device without read-ahead, return the kernel's default: pieces need a
/// length above zero.
pub fn of_device(file: &File) -> usize {
    let known = file.metadata().ok().and_then(|status| queue(status.dev()));
    known.filter(|bytes| *bytes > 0).unwrap_or(DEFAULT_BYTES)
}

fn queue(device: u64) -> Option<usize> {
    let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let places = ["queue/read_ahead_kb", "../queue/read_ahead_kb"];
    places.iter().find_map(|place| kibibytes(&Path::new(&folder).join(place)))
}

fn kibibytes(path: &Path) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_no_disk_has_the_default() {
        assert_eq!(of_device(&File::open("/proc/self/status").unwrap()), DEFAULT_BYTES);
    }
}
