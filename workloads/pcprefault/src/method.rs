//! The ways of having a file in memory before it is used.

use contract::options::Choice;
use contract::page::page_bytes;
use contract::Failure;
use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// WILLNEED and readahead(2) reach no further than the device's readahead, so a file is asked for in pieces that the
/// smallest usual readahead (128 KiB) still covers.
const PIECE_BYTES: usize = 128 << 10;

/// How a file is loaded ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// read(2) into anonymous memory, which is then used instead of a mapping.
    Read,
    /// Nothing but mmap(2).
    MapOnly,
    /// mmap(2) with `MAP_POPULATE`.
    MapPopulate,
    /// One byte of each page is looked at.
    Touch,
    /// Every byte is looked at for nothing, so that the compiler leaves the loop out.
    TouchElided,
    /// `MADV_POPULATE_READ` (Linux 5.14).
    PopulateRead,
    /// `MADV_WILLNEED`, in pieces: begins to read and does not wait.
    WillNeed,
    /// readahead(2), in pieces.
    Readahead,
    /// mlock(2).
    Mlock,
}

/// As they are typed.
pub const METHODS: &[Choice<Method>] = &[
    ("map-only", Method::MapOnly),
    ("read", Method::Read),
    ("map-populate", Method::MapPopulate),
    ("touch", Method::Touch),
    ("touch-elided", Method::TouchElided),
    ("populate-read", Method::PopulateRead),
    ("willneed", Method::WillNeed),
    ("readahead", Method::Readahead),
    ("mlock", Method::Mlock),
];

impl Method {
    /// Whether the method is what makes the memory, instead of working on a mapping that is there.
    #[must_use]
    pub fn makes_memory(self) -> bool {
        matches!(self, Self::Read | Self::MapOnly | Self::MapPopulate)
    }

    /// Its name as it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|choice| choice.1 == self).unwrap_or(&METHODS[0]).0
    }

    /// Loads a part of the mapped file; does nothing where the method makes the memory.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where the kernel refuses.
    pub fn prefault(self, file: &File, mapped: &[u8], part: Range<usize>) -> Result<(), Failure> {
        let done = match self {
            Self::Read | Self::MapOnly | Self::MapPopulate => Ok(()),
            Self::Touch => {
                black_box(touch(&mapped[part]));
                Ok(())
            }
            Self::TouchElided => {
                touch_elided(&mapped[part]);
                Ok(())
            }
            Self::PopulateRead => advise(&mapped[part], libc::MADV_POPULATE_READ),
            Self::WillNeed => in_pieces(part, |piece| advise(&mapped[piece], libc::MADV_WILLNEED)),
            Self::Readahead => in_pieces(part, |piece| readahead(file, &piece)),
            Self::Mlock => lock(&mapped[part]),
        };
        done.map_err(|cause| Failure::CannotHere(format!("{} is not done here: {cause}", self.name())))
    }
}

/// One byte a page is enough to have the whole page read.
#[inline(never)]
fn touch(bytes: &[u8]) -> u64 {
    black_box(bytes).iter().step_by(page_bytes()).map(|byte| u64::from(*byte)).sum()
}

/// The loop whose result nobody uses. It is compiled without `black_box` on purpose: an optimising compiler sees that
/// it does nothing and leaves it out, and no page is ever touched.
#[inline(never)]
fn touch_elided(bytes: &[u8]) {
    let _ = bytes.iter().fold(0, |parity, byte| parity ^ byte);
}

fn in_pieces(
    part: Range<usize>,
    mut work: impl FnMut(Range<usize>) -> Result<(), Error>,
) -> Result<(), Error> {
    let end = part.end;
    part.step_by(PIECE_BYTES).try_for_each(|start| work(start..(start + PIECE_BYTES).min(end)))
}

fn advise(bytes: &[u8], advice: libc::c_int) -> Result<(), Error> {
    // SAFETY: both kinds of advice only load what is mapped there; neither changes a byte.
    checked(unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), advice) })
}

fn readahead(file: &File, piece: &Range<usize>) -> Result<(), Error> {
    let offset = libc::off64_t::try_from(piece.start).map_err(Error::other)?;
    // SAFETY: readahead(2) has no preconditions.
    let code = unsafe { libc::readahead(file.as_raw_fd(), offset, piece.len()) };
    if code == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

fn lock(bytes: &[u8]) -> Result<(), Error> {
    // SAFETY: it only pins what is mapped there; unmapping unlocks it.
    checked(unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) })
}

fn checked(code: libc::c_int) -> Result<(), Error> {
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
            in_pieces(start..start + length, |piece| {
                assert!(piece.start == next && piece.len() <= PIECE_BYTES && !piece.is_empty());
                next = piece.end;
                Ok(())
            })
            .unwrap();
            prop_assert_eq!(next, start + length);
        }
    }

    #[test]
    fn every_method_has_a_name_of_its_own() {
        for (name, method) in METHODS {
            assert_eq!(*name, method.name());
        }
    }
}
