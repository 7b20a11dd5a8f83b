//! Where the bytes lie: in the heap, in the file mapped, or in the file itself.

use crate::advice::{advise, advise_file, madvise, Advice};
use crate::arguments::Plan;
use contract::Failure;
use memmap2::{Mmap, MmapMut, MmapOptions};
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

const THP_SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The name of a source, as the arguments have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous memory.
    Heap,
    /// Anonymous memory in huge pages, as far as the kernel finds any.
    HeapThp,
    /// The file, mapped shared and read-only.
    Mmap,
    /// pread(2), a block at a time.
    Pread,
    /// `io_uring`, many blocks at a time.
    Uring,
    /// `io_uring` and `O_DIRECT`, with a cache of pages in the process.
    DirectCache,
}

impl Kind {
    /// Whether the whole working set can be looked at as memory.
    #[must_use]
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Heap | Self::HeapThp | Self::Mmap)
    }
}

/// A working set ready to be read.
#[derive(Debug)]
pub struct Source {
    /// Its length.
    pub size_bytes: usize,
    /// Where it is.
    pub place: Place,
}

/// Where a working set is.
#[derive(Debug)]
pub enum Place {
    /// Anonymous memory, every page of it written.
    Heap(MmapMut),
    /// A mapped file, which keeps the open file, and so its readahead, alive.
    Mapped(Mmap),
    /// An open file.
    File(File),
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
    /// Opens the file and makes its first bytes (the whole, where no number is named) readable as the plan asks.
    ///
    /// # Errors
    /// When the file is missing, empty or too short, or this host has no such way ([`Failure::CannotHere`]).
    pub fn open(plan: &Plan) -> Result<(Self, Setup), Failure> {
        let mut setup = Setup::default();
        let (file, size_bytes) =
            timed(&mut setup.open_seconds, || open(&plan.file, plan.size_bytes, plan.opens_direct()))?;
        timed(&mut setup.advise_seconds, || advise_file(&file, plan.fadvise))?;
        let place = match plan.source {
            Kind::Heap | Kind::HeapThp => heap(plan, file, size_bytes, &mut setup)?,
            Kind::Mmap => mapped(plan, &file, size_bytes, &mut setup)?,
            Kind::Pread | Kind::Uring | Kind::DirectCache => Place::File(file),
        };
        Ok((Self { size_bytes, place }, setup))
    }
}

/// The length to work on: what was asked for, or the file's own.
///
/// # Errors
/// When the file is missing, empty or shorter than asked.
pub fn size_of(path: &Path, size_bytes: Option<u64>) -> Result<usize, Failure> {
    open(path, size_bytes, false).map(|(_, length)| length)
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    let outcome = work();
    *seconds += start.elapsed().as_secs_f64();
    outcome
}

fn open(path: &Path, size_bytes: Option<u64>, direct: bool) -> Result<(File, usize), Failure> {
    let shown = path.display();
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|cause| {
        // What open(2) says where a file system has no direct I/O.
        if direct && cause.raw_os_error() == Some(libc::EINVAL) {
            return Failure::CannotHere(format!("{shown} lies on a file system without O_DIRECT: {cause}"));
        }
        Failure::of(format!("cannot open {shown}"), cause)
    })?;
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

fn mapped(plan: &Plan, file: &File, size_bytes: usize, setup: &mut Setup) -> Result<Place, Failure> {
    let mut options = MmapOptions::new();
    options.len(size_bytes);
    if plan.advice == Advice::MapPopulate {
        options.populate();
    }
    let map = timed(&mut setup.map_seconds, || {
        // SAFETY: a file that others change while it is read gives other bytes, which the checksum shows, and one
        // that they truncate gives SIGBUS, which `contract::bus_error` explains.
        unsafe { options.map(file) }.map_err(|cause| cannot_map(size_bytes, &cause))
    })?;
    timed(&mut setup.advise_seconds, || advise(&map, plan.advice))?;
    Ok(Place::Mapped(map))
}

/// Reading into the memory writes every page of it. Memory that was only asked for would all be the one zero page.
fn heap(plan: &Plan, mut file: File, size_bytes: usize, setup: &mut Setup) -> Result<Place, Failure> {
    let mut heap = timed(&mut setup.map_seconds, || {
        MmapMut::map_anon(size_bytes).map_err(|cause| cannot_map(size_bytes, &cause))
    })?;
    if plan.source == Kind::HeapThp {
        timed(&mut setup.advise_seconds, || huge_pages(&heap))?;
    }
    timed(&mut setup.fill_seconds, || {
        file.read_exact(&mut heap)
            .map_err(|cause| Failure::of(format!("cannot read {}", plan.file.display()), cause))
    })?;
    Ok(Place::Heap(heap))
}

fn huge_pages(heap: &[u8]) -> Result<(), Failure> {
    let setting = std::fs::read_to_string(THP_SETTING).unwrap_or_default();
    if setting.is_empty() || setting.contains("[never]") {
        return Err(Failure::CannotHere(format!("transparent huge pages are switched off in {THP_SETTING}")));
    }
    madvise(heap, libc::MADV_HUGEPAGE)
        .map_err(|cause| Failure::CannotHere(format!("madvise does not do HugePage here: {cause}")))
}

fn cannot_map(size_bytes: usize, cause: &std::io::Error) -> Failure {
    Failure::CannotHere(format!("cannot map {size_bytes} bytes: {cause}"))
}
