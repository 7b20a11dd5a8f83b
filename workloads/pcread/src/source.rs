//! Where the bytes lie: in the heap, filled from the file, or in the file itself, mapped.

use contract::Failure;
use memmap2::{Advice as Hint, Mmap, MmapMut, MmapOptions};
use serde_json::{json, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// A WILLNEED reaches no further than the device's readahead, so a whole file is asked for in pieces that the
/// smallest usual readahead (128 KiB) still covers.
const WILLNEED_BYTES: usize = 128 << 10;

/// The name of a source, as the arguments have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous memory.
    Heap,
    /// The file, mapped shared and read-only.
    Mmap,
}

/// What the kernel is told about a mapping before it is read, madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Normal,
    /// `MADV_RANDOM`: no readahead.
    Random,
    /// `MADV_SEQUENTIAL`: readahead that does not give up.
    Sequential,
    /// `MADV_WILLNEED`: begin to read all of it.
    WillNeed,
    /// `MADV_POPULATE_READ` (Linux 5.14): read all of it and map every page.
    PopulateRead,
}

/// A working set ready to be read.
#[derive(Debug)]
pub enum Source {
    /// Anonymous memory, every page of it written.
    Heap(MmapMut),
    /// A mapped file.
    Mapped(Mmap),
}

/// How long each part of the set-up took, outside the measured part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    open_seconds: f64,
    map_seconds: f64,
    fill_seconds: f64,
    advise_seconds: f64,
}

impl Setup {
    /// The figures of the closing line.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({
            "open_seconds": self.open_seconds,
            "map_seconds": self.map_seconds,
            "fill_seconds": self.fill_seconds,
            "advise_seconds": self.advise_seconds,
        })
    }
}

impl Source {
    /// Opens the file and makes its first `size_bytes` (the whole, where none are named) readable as memory.
    ///
    /// # Errors
    /// When the file is missing, empty or too short, or memory cannot be had ([`Failure::CannotHere`]).
    pub fn open(
        path: &Path,
        kind: Kind,
        advice: Advice,
        size_bytes: Option<u64>,
    ) -> Result<(Self, Setup), Failure> {
        let mut setup = Setup::default();
        let (mut file, length) = timed(&mut setup.open_seconds, || open(path, size_bytes))?;
        let source = timed(&mut setup.map_seconds, || map(&file, kind, length))?;
        let source = match source {
            Self::Heap(heap) => timed(&mut setup.fill_seconds, || fill(heap, &mut file, path))?,
            Self::Mapped(mapped) => timed(&mut setup.advise_seconds, || advise(mapped, advice))?,
        };
        Ok((source, setup))
    }

    /// The working set.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(heap) => heap,
            Self::Mapped(mapped) => mapped,
        }
    }
}

/// The length to work on: what was asked for, or the file's own.
///
/// # Errors
/// When the file is missing, empty or shorter than asked.
pub fn size_of(path: &Path, size_bytes: Option<u64>) -> Result<usize, Failure> {
    open(path, size_bytes).map(|(_, length)| length)
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    let outcome = work();
    *seconds = start.elapsed().as_secs_f64();
    outcome
}

fn open(path: &Path, size_bytes: Option<u64>) -> Result<(File, usize), Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|cause| Failure::of(format!("cannot open {shown}"), cause))?;
    let status = file.metadata().map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
    if !status.is_file() || status.len() == 0 {
        return Err(Failure::Failed(format!("{shown} is empty or not a regular file")));
    }
    let length = size_bytes.unwrap_or(status.len());
    if length > status.len() {
        let found = status.len();
        return Err(Failure::Failed(format!("{shown} is only {found} bytes long, {length} were asked for")));
    }
    let length = usize::try_from(length).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
    Ok((file, length))
}

fn map(file: &File, kind: Kind, length: usize) -> Result<Source, Failure> {
    let mapped = match kind {
        Kind::Heap => MmapMut::map_anon(length).map(Source::Heap),
        // SAFETY: a file that others change while it is read gives other bytes, which the checksum shows, and one
        // that they truncate gives SIGBUS, which `bus_error` explains.
        Kind::Mmap => unsafe { MmapOptions::new().len(length).map(file) }.map(Source::Mapped),
    };
    mapped.map_err(|cause| Failure::CannotHere(format!("cannot map {length} bytes: {cause}")))
}

/// Reading into the memory writes every page of it. Memory that was only asked for would all be the one zero page.
fn fill(mut heap: MmapMut, file: &mut File, path: &Path) -> Result<Source, Failure> {
    file.read_exact(&mut heap)
        .map_err(|cause| Failure::of(format!("cannot read {}", path.display()), cause))?;
    Ok(Source::Heap(heap))
}

fn advise(mapped: Mmap, advice: Advice) -> Result<Source, Failure> {
    let given = match advice {
        Advice::Normal => Ok(()),
        Advice::Random => mapped.advise(Hint::Random),
        Advice::Sequential => mapped.advise(Hint::Sequential),
        Advice::WillNeed => will_need(&mapped),
        Advice::PopulateRead => mapped.advise(Hint::PopulateRead),
    };
    given.map_err(|cause| Failure::CannotHere(format!("madvise does not do {advice:?} here: {cause}")))?;
    Ok(Source::Mapped(mapped))
}

fn will_need(mapped: &Mmap) -> std::io::Result<()> {
    (0..mapped.len()).step_by(WILLNEED_BYTES).try_for_each(|start| {
        mapped.advise_range(Hint::WillNeed, start, WILLNEED_BYTES.min(mapped.len() - start))
    })
}
