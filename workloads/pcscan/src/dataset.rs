//! The files to scan: opened, mapped if they are scanned as memory, and the sum of their bytes.

use crate::buffer::Buffer;
use crate::read_ahead;
use crate::sizes::size;
use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;
use contract::failure::OrFailure;
use contract::sidecar::STRIDE_BYTES;
use contract::{data_files, Failure, Sidecar};
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The files and how they are read.
#[derive(Debug, Clone, clap::Args)]
pub struct DatasetOptions {
    /// The files to scan
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,
    /// Method of bringing bytes into memory
    #[arg(long, value_enum, default_value = "mmap")]
    pub io: Io,
    /// Bytes are read and looked at in pieces of this length
    #[arg(long = "buf", value_name = "BYTES", default_value = "64K", value_parser = size)]
    pub piece_bytes: usize,
    /// Reads of one file in flight in the ring
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=16))]
    depth: usize,
    /// A full pass must have the sum that the files' sidecars state
    #[arg(long)]
    pub expect_sidecars: bool,
}

/// Method of bringing bytes into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// The file is mapped
    Mmap,
    /// pread(2), which waits
    Read,
    /// tokio's files: pread(2) in a pool of threads
    TokioFs,
    /// Reads through `io_uring`
    Uring,
    /// The same with `O_DIRECT`
    UringDirect,
    /// The usual way: tokio's files on an executor, pread(2) in threads
    Conventional,
}

impl Io {
    /// Return whether the kernel writes into buffers asynchronously.
    pub fn needs_buffers(self) -> bool {
        matches!(self, Self::Uring | Self::UringDirect)
    }
}

impl DatasetOptions {
    /// Open the files. Fails if a file is missing or empty, or cannot be read as requested
    /// ([`Failure::CannotHere`]).
    pub fn open(&self) -> Result<Vec<Arc<Source>>, Failure> {
        self.files.iter().map(|path| Source::open(path, self).map(Arc::new)).collect()
    }

    /// Return the expected sum of all files; None if sidecars are not compared. Fails if a sidecar
    /// cannot be read, or describes another length.
    pub fn expected_sum(
        &self,
        sources: &[Arc<Source>],
        stride: usize,
    ) -> Result<Option<u64>, Failure> {
        if !self.expect_sidecars {
            return Ok(None);
        }
        sources.iter().map(|source| sum_of(source, stride)).sum::<Result<u64, Failure>>().map(Some)
    }
}

/// One file, ready to be scanned.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    pub file: File,
    pub len: usize,
    /// Its mapping, shared, read-only and untouched; None if the file is not scanned as memory.
    pub map: Option<Arc<Mmap>>,
    /// The device's read-ahead.
    pub read_ahead_bytes: usize,
    /// Buffers for reads through `io_uring`; the scan takes them and puts them back.
    pub buffers: Mutex<Vec<Buffer>>,
}

impl Source {
    fn open(path: &Path, options: &DatasetOptions) -> Result<Self, Failure> {
        let (file, len) = data_files::open(path, options.io == Io::UringDirect)?;
        let map = if options.io == Io::Mmap { Some(Arc::new(map(&file, path)?)) } else { None };
        let depth = if options.io.needs_buffers() { options.depth } else { 0 };
        let buffers =
            (0..depth).map(|_| Buffer::new(options.piece_bytes)).collect::<Result<_, _>>()?;
        let read_ahead_bytes = read_ahead::of_device(&file);
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            map,
            read_ahead_bytes,
            buffers: Mutex::new(buffers),
        })
    }
}

fn map(file: &File, path: &Path) -> Result<Mmap, Failure> {
    // SAFETY: a file that another process changes meanwhile has other bytes, which the checksum
    // shows. A truncated one causes SIGBUS, which `bus_error` reports.
    unsafe { MmapOptions::new().map(file) }.or_cannot_here(format!("cannot map {}", path.display()))
}

/// The command line permits only strides whose sum a sidecar states.
fn sum_of(source: &Source, stride: usize) -> Result<u64, Failure> {
    let path = Sidecar::path_of(&source.path);
    let sidecar = Sidecar::load(&path)?;
    if sidecar.size_bytes != source.len as u64 {
        let (described, found) = (sidecar.size_bytes, source.len);
        let shown = path.display();
        return Err(Failure::Failed(format!(
            "{shown} describes {described} bytes, its file has {found}"
        )));
    }
    Ok(if stride == STRIDE_BYTES { sidecar.stride512_sum } else { sidecar.byte_sum })
}
