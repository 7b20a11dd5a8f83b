//! Whether a window of a file can be touched without waiting for the disk, as far as the kernel tells.

use contract::page::page_bytes;
use contract::page_cache::cachestat_of_part;
use contract::Failure;
use std::fs::File;
use std::ops::Range;

/// Whether every page of that range is in the page cache. Pages that are just being read count as there: the kernel
/// does not tell them apart.
///
/// # Errors
/// [`Failure::CannotHere`] where the kernel has no cachestat(2) or does not allow it.
pub fn is_resident(file: &File, range: &Range<usize>) -> Result<bool, Failure> {
    let counts = cachestat_of_part(file, range.start as u64, range.len() as u64).map_err(|cause| {
        Failure::CannotHere(format!("cachestat, which --fix cachestat-gate needs, is refused here: {cause}"))
    })?;
    let page = page_bytes();
    Ok(counts.cache_pages >= (range.end.div_ceil(page) - range.start / page) as u64)
}
