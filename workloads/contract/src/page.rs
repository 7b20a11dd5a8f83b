//! The unit in which the kernel caches files and maps memory.

/// Return the size of this kernel's pages: 4 KiB on x86-64, up to 64 KiB on other architectures.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}
