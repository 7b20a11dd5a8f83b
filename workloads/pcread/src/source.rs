//! The working set: in the heap, in a mapped file, or in the file itself.

use crate::advice::{advise, advise_file, Advice, FileAdvice};
use clap::{value_parser, ValueEnum};
use contract::advice::madvise;
use contract::failure::OrFailure;
use contract::timing::timed;
use contract::{data_files, Failure};
use memmap2::{Mmap, MmapMut, MmapOptions};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

const THP_SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The file and how it is accessed.
#[derive(Debug, Clone, clap::Args)]
pub struct SourceOptions {
    /// The file that holds the working set
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Data source
    #[arg(long, value_enum, default_value = "mmap")]
    pub source: Kind,
    /// pread, uring: bypass the page cache, `O_DIRECT`
    #[arg(long)]
    pub direct: bool,
    /// Only the first N bytes of the file
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    size_bytes: Option<u64>,
    /// Advice to the kernel about the mapping before reading, madvise(2)
    #[arg(long, value_enum, default_value = "normal")]
    advice: Advice,
    /// Advice about the open file, `posix_fadvise(2)`
    #[arg(long, value_enum, default_value = "normal")]
    fadvise: FileAdvice,
}

/// Data source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The file, mapped shared and read-only
    Mmap,
    /// Anonymous memory, filled from the file
    Heap,
    /// Anonymous memory in huge pages, as far as the kernel finds any
    HeapThp,
    /// The file by pread(2), one block at a time
    Pread,
    /// The file by `io_uring`, many blocks at a time
    Uring,
    /// The file by `io_uring` and `O_DIRECT`, with a cache of pages in the process
    DirectCache,
}

impl SourceOptions {
    /// Return whether the file is opened with `O_DIRECT`.
    pub fn opens_direct(&self) -> bool {
        self.direct || self.source == Kind::DirectCache
    }

    /// Return whether there is advice about the mapping.
    pub fn has_advice(&self) -> bool {
        self.advice != Advice::Normal
    }

    /// Return whether there is advice about the file.
    pub fn has_file_advice(&self) -> bool {
        self.fadvise != FileAdvice::Normal
    }

    /// Return whether blocks are advised while reading.
    pub fn advises_blocks(&self) -> bool {
        self.advice == Advice::WillNeedBatched
    }

    /// Return whether the advice drops pages from the page cache.
    pub fn drops_pages(&self) -> bool {
        self.fadvise == FileAdvice::DontNeed || self.advice == Advice::PageOut
    }
}

impl Kind {
    /// Return whether this is anonymous memory.
    pub fn is_heap(self) -> bool {
        matches!(self, Self::Heap | Self::HeapThp)
    }

    /// Return whether the whole working set can be accessed as memory.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Heap | Self::HeapThp | Self::Mmap)
    }
}

/// A working set ready to be read.
#[derive(Debug)]
pub struct Source {
    pub size_bytes: usize,
    pub working_set: WorkingSet,
}

/// The bytes of a working set.
#[derive(Debug)]
pub enum WorkingSet {
    /// Anonymous memory, every page of it written.
    Heap(MmapMut),
    /// A mapped file. The mapping keeps the open file, and so its readahead, alive.
    Mapped(Mmap),
    /// An open file.
    File(File),
}

/// Durations of the set-up, outside the measured part.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Setup {
    open_seconds: f64,
    map_seconds: f64,
    fill_seconds: f64,
    advise_seconds: f64,
}

impl Source {
    /// Open the file and make the working set readable as requested. Fails if the file is missing,
    /// empty or too short, or this host does not support the access ([`Failure::CannotHere`]).
    pub fn open(options: &SourceOptions) -> Result<(Self, Setup), Failure> {
        let mut setup = Setup::default();
        let (file, size_bytes) =
            timed(&mut setup.open_seconds, || open(options, options.opens_direct()))?;
        timed(&mut setup.advise_seconds, || advise_file(&file, options.fadvise))?;
        let working_set = match options.source {
            Kind::Heap | Kind::HeapThp => heap(options, file, size_bytes, &mut setup)?,
            Kind::Mmap => mapped(options, &file, size_bytes, &mut setup)?,
            Kind::Pread | Kind::Uring | Kind::DirectCache => WorkingSet::File(file),
        };
        Ok((Self { size_bytes, working_set }, setup))
    }
}

/// Return the length of the working set: the requested one, or the file's. Fails if the file is
/// missing, empty or shorter than requested.
pub fn size_of(options: &SourceOptions) -> Result<usize, Failure> {
    open(options, false).map(|(_, length)| length)
}

fn open(options: &SourceOptions, direct: bool) -> Result<(File, usize), Failure> {
    let (file, found) = data_files::open(&options.file, direct)?;
    let length = options.size_bytes.unwrap_or(found as u64);
    if length > found as u64 {
        let shown = options.file.display();
        return Err(Failure::Failed(format!(
            "{shown} is only {found} bytes long, {length} were asked for"
        )));
    }
    let length = usize::try_from(length).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
    Ok((file, length))
}

fn mapped(
    options: &SourceOptions,
    file: &File,
    size_bytes: usize,
    setup: &mut Setup,
) -> Result<WorkingSet, Failure> {
    let mut mapping = MmapOptions::new();
    mapping.len(size_bytes);
    if options.advice == Advice::MapPopulate {
        mapping.populate();
    }
    let map = timed(&mut setup.map_seconds, || {
        // SAFETY: a file that another process changes meanwhile has other bytes, which the checksum
        // shows. A truncated one causes SIGBUS, which `contract::bus_error` reports.
        unsafe { mapping.map(file) }.or_cannot_here(format!("cannot map {size_bytes} bytes"))
    })?;
    timed(&mut setup.advise_seconds, || advise(&map, options.advice))?;
    Ok(WorkingSet::Mapped(map))
}

/// Read the file into memory, which writes every page. Untouched memory would all be the one zero
/// page.
fn heap(
    options: &SourceOptions,
    mut file: File,
    size_bytes: usize,
    setup: &mut Setup,
) -> Result<WorkingSet, Failure> {
    let mut heap = timed(&mut setup.map_seconds, || {
        MmapMut::map_anon(size_bytes).or_cannot_here(format!("cannot map {size_bytes} bytes"))
    })?;
    if options.source == Kind::HeapThp {
        timed(&mut setup.advise_seconds, || huge_pages(&heap))?;
    }
    timed(&mut setup.fill_seconds, || {
        file.read_exact(&mut heap).or_failed(format!("cannot read {}", options.file.display()))
    })?;
    Ok(WorkingSet::Heap(heap))
}

fn huge_pages(heap: &[u8]) -> Result<(), Failure> {
    let setting = std::fs::read_to_string(THP_SETTING).unwrap_or_default();
    if setting.is_empty() || setting.contains("[never]") {
        return Err(Failure::CannotHere(format!(
            "transparent huge pages are switched off in {THP_SETTING}"
        )));
    }
    madvise(heap, libc::MADV_HUGEPAGE).or_cannot_here("madvise does not do HugePage here")
}
