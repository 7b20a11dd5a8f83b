//! The machine, without its name.

use serde::Serialize;

/// The machine that the program runs on; None if a figure is unknown.
#[derive(Debug, Serialize)]
pub struct Machine {
    kernel: Option<String>,
    architecture: &'static str,
    cpus: Option<i64>,
    memory_bytes: Option<u64>,
}

impl Machine {
    /// Examine this machine.
    pub fn here() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        // SAFETY: sysconf has no preconditions.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Self {
            kernel: release.map(|text| text.trim().to_owned()),
            architecture: std::env::consts::ARCH,
            cpus: (cpus > 0).then_some(cpus),
            memory_bytes: std::fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| memory_bytes(&text)),
        }
    }
}

/// Return `MemTotal` in bytes. meminfo counts in KiB, although it writes kB.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Return the host's name, for reports that shall have it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reported_in_bytes() {
        assert_eq!(memory_bytes("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(memory_bytes(""), None);
    }
}
