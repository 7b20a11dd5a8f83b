//! Advice to the kernel about memory and files.

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The smallest usual read-ahead of a device. One WILLNEED or readahead(2) reads no further than
/// the read-ahead, so a larger range is requested in pieces of this length.
pub const READ_AHEAD_BYTES: usize = 128 << 10;

/// Advise the kernel about mapped memory that is only read, madvise(2). `rustix` has no
/// `MADV_COLLAPSE`.
///
/// # Errors
/// If the kernel rejects the advice.
pub fn madvise(bytes: &[u8], advice: libc::c_int) -> Result<()> {
    // SAFETY: the slice is mapped memory. No advice used by the workloads changes a byte of a
    // shared file mapping, and anonymous memory is only ever given MADV_HUGEPAGE.
    checked(unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), advice) })
}

/// Start reading part of a file into the page cache, readahead(2).
///
/// # Errors
/// If the kernel refuses.
pub fn readahead(file: &File, part: &Range<usize>) -> Result<()> {
    let offset = libc::off64_t::try_from(part.start).map_err(Error::other)?;
    // SAFETY: the descriptor is open, and the call touches no memory of this process.
    checked(i32::from(unsafe { libc::readahead(file.as_raw_fd(), offset, part.len()) } != 0))
}

/// Call `work` with consecutive pieces of `part`.
///
/// # Errors
/// The first error of `work`.
pub fn in_pieces<E>(
    part: Range<usize>,
    piece_bytes: usize,
    work: impl FnMut(Range<usize>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let end = part.end;
    part.step_by(piece_bytes).map(|start| start..(start + piece_bytes).min(end)).try_for_each(work)
}

fn checked(code: libc::c_int) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_the_part(start in 0_usize..1_000_000, length in 0_usize..2_000_000) {
            let mut next = start;
            in_pieces(start..start + length, READ_AHEAD_BYTES, |piece| {
                assert!(piece.start == next && piece.len() <= READ_AHEAD_BYTES && !piece.is_empty());
                next = piece.end;
                Ok::<(), Error>(())
            })
            .unwrap();
            prop_assert_eq!(next, start + length);
        }
    }
}
