//! The machine, without its name.

use serde_json::{json, Value};
use std::ffi::CStr;

/// What the program runs on, as it stands in the JSON.
#[must_use]
pub fn machine() -> Value {
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_bytes(&text));
    // SAFETY: sysconf has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    json!({
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        "architecture": std::env::consts::ARCH,
        "cpus": (cpus > 0).then_some(cpus),
        "memory_bytes": memory,
    })
}

/// `MemTotal`, which meminfo tells in KiB whatever it calls them.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The host's name, for those who want it told.
#[must_use]
pub fn host_name() -> Option<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is as long as it is said to be, one byte kept for the end.
    let done = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    (done == 0).then(|| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(memory_bytes("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(memory_bytes(""), None);
    }
}
