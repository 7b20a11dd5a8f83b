//! The unit in which the kernel keeps files and maps memory.

/// The size of this kernel's pages: 4 KiB on x86-64, up to 64 KiB elsewhere.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let found = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(found).unwrap_or(4096)
}
