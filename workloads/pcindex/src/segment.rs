//! One file of the index: open, mapped, and described by its sidecar.

use clap::ValueEnum;
use contract::failure::OrFailure;
use contract::index::{self, BUCKET_BYTES};
use contract::{Failure, Sidecar};
use memmap2::{Advice as Hint, Mmap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The files of the index and the advice about them.
#[derive(Debug, Clone, clap::Args)]
pub struct IndexOptions {
    /// The index, made by `pcgen --fill index`, each file with its sidecar beside it
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,
    /// Advice to the kernel about the mappings before loading, madvise(2)
    #[arg(long, value_enum, default_value = "normal")]
    advice: Advice,
    /// Advice between loading and looking up
    #[arg(long, value_enum, default_value = "same")]
    then_advice: ThenAdvice,
}

/// Advice to the kernel about a mapping, madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Advice {
    /// `MADV_NORMAL`: a fault also reads the pages around
    Normal,
    /// `MADV_RANDOM`: a fault reads its own page only
    Random,
    /// `MADV_SEQUENTIAL`: a fault always reads ahead
    Sequential,
}

/// Advice between loading and looking up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ThenAdvice {
    /// No other advice than before
    Same,
    /// `MADV_NORMAL`
    Normal,
    /// `MADV_RANDOM`
    Random,
    /// `MADV_SEQUENTIAL`
    Sequential,
}

impl IndexOptions {
    /// Open, map and advise all files without reading any of them. Fails if a file or its sidecar
    /// is missing, or it is not an index.
    pub fn open(&self) -> Result<Vec<Segment>, Failure> {
        let open = |path: &PathBuf| {
            let segment = Segment::open(path)?;
            segment.advise(self.advice)?;
            Ok(segment)
        };
        self.files.iter().map(open).collect()
    }

    /// Give the advice between loading and looking up, if there is one. Fails with
    /// [`Failure::CannotHere`] if the kernel rejects it.
    pub fn advise_again(&self, segments: &[Segment]) -> Result<(), Failure> {
        let advice = match self.then_advice {
            ThenAdvice::Same => return Ok(()),
            ThenAdvice::Normal => Advice::Normal,
            ThenAdvice::Random => Advice::Random,
            ThenAdvice::Sequential => Advice::Sequential,
        };
        segments.iter().try_for_each(|segment| segment.advise(advice))
    }
}

/// A hash table in a file.
#[derive(Debug)]
pub struct Segment {
    pub path: PathBuf,
    pub file: File,
    /// All of it, mapped shared and read-only.
    pub map: Mmap,
    pub sidecar: Sidecar,
}

impl Segment {
    fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let sidecar = Sidecar::load(&Sidecar::path_of(path))?;
        let file = File::open(path).or_failed(format!("cannot open {shown}"))?;
        let status = file.metadata().or_failed(format!("cannot examine {shown}"))?;
        if sidecar.fill != "index"
            || status.len() != sidecar.size_bytes
            || index::buckets(status.len()) == 0
        {
            return Err(Failure::Failed(format!(
                "{shown} is no whole index: make it with `pcgen --fill index`"
            )));
        }
        // SAFETY: a file that another process changes meanwhile has other bytes, which the answers
        // show. A truncated one causes SIGBUS, which `bus_error` reports.
        let map = unsafe { Mmap::map(&file) }.or_cannot_here(format!("cannot map {shown}"))?;
        Ok(Self { path: path.to_owned(), file, map, sidecar })
    }

    /// Return the number of its buckets.
    pub fn buckets(&self) -> u64 {
        (self.map.len() / BUCKET_BYTES) as u64
    }

    fn advise(&self, advice: Advice) -> Result<(), Failure> {
        let hint = match advice {
            Advice::Normal => Hint::Normal,
            Advice::Random => Hint::Random,
            Advice::Sequential => Hint::Sequential,
        };
        self.map.advise(hint).or_cannot_here(format!("madvise does not do {advice:?} here"))
    }
}
