//! The file under construction: allocated, locked, and gone again unless it was finished.

use contract::Failure;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `FILE.part`, removed when dropped unfinished.
#[derive(Debug)]
pub struct PartFile {
    path: PathBuf,
    file: File,
    finished: bool,
}

impl PartFile {
    /// Opens the part file of `data` for this process alone and allocates `size_bytes` for it.
    ///
    /// # Errors
    /// When another process is writing it, the disk has not enough room, or the file system refuses.
    pub fn create(data: &Path, size_bytes: u64) -> Result<Self, Failure> {
        require_room(data, size_bytes)?;
        let path = with_suffix(data, ".part");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|cause| Failure::of(format!("cannot create {}", path.display()), cause))?;
        lock(&file, &path)?;
        let part = Self { path, file, finished: false };
        part.allocate(size_bytes)?;
        Ok(part)
    }

    /// The open file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Flushes everything to the disk and refuses a file with holes.
    ///
    /// # Errors
    /// When the flush fails or fewer blocks are allocated than the file is long.
    pub fn settle(&self) -> Result<(), Failure> {
        self.file
            .sync_all()
            .map_err(|cause| Failure::of(format!("cannot flush {}", self.path.display()), cause))?;
        require_no_holes(&self.file, &self.path)
    }

    /// Gives the finished file its name.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn finish(mut self, data: &Path) -> Result<(), Failure> {
        std::fs::rename(&self.path, data)
            .map_err(|cause| Failure::of(format!("cannot rename {}", self.path.display()), cause))?;
        self.finished = true;
        sync_folder_of(data)
    }

    /// Allocating first keeps the file in few extents and finds out early that the disk is full. Some file systems
    /// cannot: there, writing allocates.
    fn allocate(&self, size_bytes: u64) -> Result<(), Failure> {
        let told = |cause| {
            Failure::of(format!("cannot allocate {size_bytes} bytes for {}", self.path.display()), cause)
        };
        self.file.set_len(0).map_err(told)?;
        let length =
            libc::off_t::try_from(size_bytes).map_err(|_| told(std::io::ErrorKind::FileTooLarge.into()))?;
        // SAFETY: the descriptor is open for writing as long as `self` lives.
        let refused = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, length) } != 0;
        let cause = std::io::Error::last_os_error();
        if refused && cause.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(told(cause));
        }
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing better can be done with an error here: the failure that led here is already being told.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses a file for which fewer blocks are allocated than it is long: reading a hole never reaches the disk.
///
/// # Errors
/// When it has holes, or its file system compresses it.
pub fn require_no_holes(file: &File, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let status = file.metadata().map_err(|cause| Failure::of(format!("cannot examine {shown}"), cause))?;
    let allocated_bytes = status.blocks() * 512; // st_blocks counts 512-byte units whatever the block size, stat(2)
    if allocated_bytes < status.len() {
        let length = status.len();
        return Err(Failure::Failed(format!(
            "{shown} has {allocated_bytes} of its {length} bytes allocated, so reading it would not reach the disk: \
             use a file system that neither compresses nor leaves holes"
        )));
    }
    Ok(())
}

/// Makes names given and taken away in a file's folder last.
///
/// # Errors
/// When the folder cannot be opened or flushed.
pub fn sync_folder_of(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    File::open(folder)
        .and_then(|opened| opened.sync_all())
        .map_err(|cause| Failure::of(format!("cannot flush the folder {}", folder.display()), cause))
}

/// `path` with something added to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Two writers of one file would mix their bytes. The lock goes when the process does, however it ends.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    let busy = || Failure::Failed(format!("another process is writing {}", path.display()));
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(busy());
    }
    // Between opening and locking, the other writer may have finished and given this very file its final name.
    let inode =
        |status: std::io::Result<std::fs::Metadata>| status.map(|status| (status.dev(), status.ino())).ok();
    let same = inode(file.metadata()) == inode(std::fs::metadata(path));
    same.then_some(()).ok_or_else(busy)
}

fn require_room(data: &Path, size_bytes: u64) -> Result<(), Failure> {
    let folder = folder_of(data);
    let available_bytes = available_bytes(folder)
        .map_err(|cause| Failure::of(format!("cannot use the folder {}", folder.display()), cause))?;
    if available_bytes < size_bytes {
        return Err(Failure::Failed(format!(
            "the disk of {} is too full: {size_bytes} bytes are needed, {available_bytes} are free",
            folder.display()
        )));
    }
    Ok(())
}

fn available_bytes(folder: &Path) -> std::io::Result<u64> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: statvfs is a plain structure for which all zeros are a value; the name ends in a zero byte.
    let (refused, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &raw mut found) != 0, found)
    };
    if refused {
        return Err(std::io::Error::last_os_error());
    }
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
