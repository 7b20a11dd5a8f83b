//! The machine, without its name.

use contract::listed_sizes::ListedSizes;
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
            memory_bytes: ListedSizes::of_machine().and_then(|sizes| sizes.bytes("MemTotal")),
        }
    }
}

/// Return the host's name, for reports that shall have it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
