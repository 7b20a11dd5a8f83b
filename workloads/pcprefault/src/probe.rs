//! Checks that this kernel supports a method.

use crate::method::Method;
use contract::failure::OrFailure;
use contract::page_cache::page_bytes;
use contract::Failure;
use memmap2::{Advice, MmapMut};
use rustix::process::{geteuid, getrlimit, Resource};

/// Try the method on one page, or check the permission for it. Fails with [`Failure::CannotHere`]
/// with the kernel's reason.
pub fn require(method: Method, length_bytes: usize) -> Result<(), Failure> {
    match method {
        Method::PopulateRead => populate_read(),
        Method::Mlock => may_lock(length_bytes),
        _ => Ok(()),
    }
}

fn populate_read() -> Result<(), Failure> {
    let tried = MmapMut::map_anon(page_bytes()).and_then(|page| page.advise(Advice::PopulateRead));
    tried.or_cannot_here("this kernel has no MADV_POPULATE_READ (Linux 5.14)")
}

/// mlock(2): a process may lock `RLIMIT_MEMLOCK` bytes, and one with `CAP_IPC_LOCK` any number.
fn may_lock(length_bytes: usize) -> Result<(), Failure> {
    match getrlimit(Resource::Memlock).current {
        Some(allowed) if allowed < length_bytes as u64 && !geteuid().is_root() => {
            Err(Failure::CannotHere(format!(
                "only {allowed} bytes may be locked (RLIMIT_MEMLOCK), {length_bytes} are needed"
            )))
        }
        _ => Ok(()),
    }
}
