//! Finding out beforehand whether this kernel does what will be asked of it.

use crate::method::Method;
use contract::page::page_bytes;
use contract::Failure;
use memmap2::{Advice, MmapMut};

/// Tries the method on one page, or asks for the right to it.
///
/// # Errors
/// [`Failure::CannotHere`] with the kernel's reason.
pub fn require(method: Method, length_bytes: usize) -> Result<(), Failure> {
    match method {
        Method::PopulateRead => populate_read(),
        Method::Mlock => may_lock(length_bytes),
        _ => Ok(()),
    }
}

fn populate_read() -> Result<(), Failure> {
    let tried = MmapMut::map_anon(page_bytes()).and_then(|page| page.advise(Advice::PopulateRead));
    tried.map_err(|cause| {
        Failure::CannotHere(format!("this kernel has no MADV_POPULATE_READ (Linux 5.14): {cause}"))
    })
}

/// mlock(2): a process may lock what `RLIMIT_MEMLOCK` says, and one with `CAP_IPC_LOCK` everything.
fn may_lock(length_bytes: usize) -> Result<(), Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call only writes to the structure; the other one has no preconditions.
    let is_root = unsafe {
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit);
        libc::geteuid() == 0
    };
    if is_root || limit.rlim_cur >= length_bytes as u64 {
        return Ok(());
    }
    let allowed = limit.rlim_cur;
    Err(Failure::CannotHere(format!(
        "only {allowed} bytes may be locked (RLIMIT_MEMLOCK), {length_bytes} are needed"
    )))
}
