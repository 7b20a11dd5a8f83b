//! The methods of loading a file into memory before it is used.

use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;
use contract::advice::{in_pieces, madvise, readahead, READ_AHEAD_BYTES};
use contract::cli::name_of;
use contract::failure::OrFailure;
use contract::page_cache::page_bytes;
use contract::Failure;
use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::ops::Range;

/// More threads than this would mostly wait for each other.
pub const MOST_THREADS: u64 = 256;

/// Method of loading a file.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadOptions {
    /// Method of loading the file
    #[arg(long, value_enum, default_value = "map-only")]
    pub method: Method,
    /// When the file is loaded
    #[arg(long, value_enum, default_value = "before")]
    pub when: When,
    /// Number of threads that load, each a part of its own; 0 loads nothing ahead
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(0..=MOST_THREADS))]
    pub prefault_threads: usize,
}

/// When the file is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// All of it before the calculation begins
    Before,
    /// During the calculation
    Beside,
}

/// Method of loading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Only mmap(2)
    MapOnly,
    /// read(2) into anonymous memory, which is then used instead of a mapping
    Read,
    /// mmap(2) with `MAP_POPULATE`
    MapPopulate,
    /// A read of one byte of each page
    Touch,
    /// A read of every byte without a result, so that the compiler removes the loop
    TouchElided,
    /// `MADV_POPULATE_READ` (Linux 5.14)
    PopulateRead,
    /// `MADV_WILLNEED` in pieces, which starts to read and does not wait
    #[value(name = "willneed")]
    WillNeed,
    /// readahead(2) in pieces
    Readahead,
    /// mlock(2)
    Mlock,
}

impl LoadOptions {
    /// Check that the method can do what the other options ask. Fails with
    /// [`Failure::BadArguments`] naming the option at fault.
    pub fn validate(&self) -> Result<(), Failure> {
        let refuse = |reason: &str| Err(Failure::BadArguments(reason.to_owned()));
        if self.method.makes_memory() && self.prefault_threads > 1 {
            return refuse("this method is a single call: it needs --prefault-threads 1 or 0");
        }
        if self.is_one_call() && self.when == When::Beside {
            return refuse(
                "this method makes the memory itself, so nothing can go on beside it: use --when before",
            );
        }
        Ok(())
    }

    /// Return whether the file is loaded by one call that also makes the memory.
    pub fn is_one_call(&self) -> bool {
        self.method.makes_memory() && self.prefault_threads > 0
    }

    /// Return the number of threads that load. One call needs none: the main thread makes it.
    pub fn threads(&self) -> usize {
        if self.method.makes_memory() {
            0
        } else {
            self.prefault_threads
        }
    }

    /// Return the options as they are typed.
    pub fn words(&self) -> Vec<String> {
        let (method, when) = (name_of(&self.method), name_of(&self.when));
        let threads = self.prefault_threads.to_string();
        vec!["--method".into(), method, "--when".into(), when, "--prefault-threads".into(), threads]
    }
}

impl Method {
    /// Return whether the method makes the memory, instead of working on a mapping.
    pub fn makes_memory(self) -> bool {
        matches!(self, Self::Read | Self::MapOnly | Self::MapPopulate)
    }

    /// Load a part of the mapped file; do nothing if the method makes the memory. Fails with
    /// [`Failure::CannotHere`] if the kernel refuses.
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
            Self::PopulateRead => madvise(&mapped[part], libc::MADV_POPULATE_READ),
            Self::WillNeed => in_pieces(part, READ_AHEAD_BYTES, |piece| {
                madvise(&mapped[piece], libc::MADV_WILLNEED)
            }),
            Self::Readahead => in_pieces(part, READ_AHEAD_BYTES, |piece| readahead(file, &piece)),
            Self::Mlock => lock(&mapped[part]),
        };
        done.or_cannot_here(format!("{} is not done here", name_of(&self)))
    }
}

/// One byte a page is enough to have the whole page read.
#[inline(never)]
fn touch(bytes: &[u8]) -> u64 {
    black_box(bytes).iter().step_by(page_bytes()).map(|byte| u64::from(*byte)).sum()
}

/// A loop whose result is unused. There is no `black_box` on purpose: an optimising compiler
/// removes the loop, and no page is ever touched.
#[inline(never)]
fn touch_elided(bytes: &[u8]) {
    let _ = bytes.iter().fold(0, |parity, byte| parity ^ byte);
}

fn lock(bytes: &[u8]) -> Result<(), Error> {
    // SAFETY: the call only pins what is mapped there; munmap(2) unlocks it.
    Ok(unsafe { rustix::mm::mlock(bytes.as_ptr().cast_mut().cast(), bytes.len()) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_name_of_its_own() {
        let names: Vec<String> = Method::value_variants().iter().map(name_of).collect();
        let expected =
            "map-only read map-populate touch touch-elided populate-read willneed readahead mlock";
        assert_eq!(names.join(" "), expected);
    }
}
