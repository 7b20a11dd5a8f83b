//! One file of the index: open, mapped, and known by its sidecar.

use crate::arguments::Advice;
use contract::index::{self, BUCKET_BYTES};
use contract::{Failure, Sidecar};
use memmap2::{Advice as Hint, Mmap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A hash table in a file.
#[derive(Debug)]
pub struct Segment {
    /// Where it lies.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
    /// All of it, mapped shared and read-only.
    pub map: Mmap,
    /// How it was made.
    pub sidecar: Sidecar,
}

impl Segment {
    /// Opens and maps a file without reading any of it.
    ///
    /// # Errors
    /// When the file or its sidecar is missing, or it is no index.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let sidecar = Sidecar::load(&Sidecar::path_of(path))?;
        let file = File::open(path).map_err(|cause| Failure::of(format!("cannot open {shown}"), cause))?;
        let status =
            file.metadata().map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
        if sidecar.fill != "index" || status.len() != sidecar.size_bytes || index::buckets(status.len()) == 0
        {
            return Err(Failure::Failed(format!(
                "{shown} is no whole index: make it with `pcgen --fill index`"
            )));
        }
        // SAFETY: a file that others change while it is read gives other bytes, which the answers show, and one that
        // they truncate gives SIGBUS, which `bus_error` explains.
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(|cause| Failure::CannotHere(format!("cannot map {shown}: {cause}")))?;
        Ok(Self { path: path.to_owned(), file, map, sidecar })
    }

    /// How many buckets it has.
    #[must_use]
    pub fn buckets(&self) -> u64 {
        (self.map.len() / BUCKET_BYTES) as u64
    }

    /// Tells the kernel how the mapping will be used.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] when it does not take the advice.
    pub fn advise(&self, advice: Advice) -> Result<(), Failure> {
        let hint = match advice {
            Advice::Normal => Hint::Normal,
            Advice::Random => Hint::Random,
            Advice::Sequential => Hint::Sequential,
        };
        self.map
            .advise(hint)
            .map_err(|cause| Failure::CannotHere(format!("madvise does not do {advice:?} here: {cause}")))
    }
}
