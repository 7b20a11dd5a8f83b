//! The file under construction: allocated, locked, and removed unless it is finished.

use contract::failure::OrFailure;
use contract::Failure;
use rustix::fs::{fallocate, flock, statvfs, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
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
    /// Open the part file of `data` exclusively and allocate `size_bytes` for it. Fails if another
    /// process is writing it, the disk has too little space, or the file system refuses.
    pub fn create(data: &Path, size_bytes: u64) -> Result<Self, Failure> {
        require_room(data, size_bytes)?;
        let path = with_suffix(data, ".part");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.or_failed(format!("cannot create {}", path.display()))?;
        lock(&file, &path)?;
        let part = Self { path, file, finished: false };
        part.allocate(size_bytes)?;
        Ok(part)
    }

    /// Return the open file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Flush the file to the disk and refuse a file with holes. Fails if the flush fails or fewer
    /// blocks are allocated than the file is long.
    pub fn settle(&self) -> Result<(), Failure> {
        self.file.sync_all().or_failed(format!("cannot flush {}", self.path.display()))?;
        require_no_holes(&self.file, &self.path)
    }

    /// Give the finished file its name. Fails if it cannot be renamed.
    pub fn finish(mut self, data: &Path) -> Result<(), Failure> {
        std::fs::rename(&self.path, data)
            .or_failed(format!("cannot rename {}", self.path.display()))?;
        self.finished = true;
        sync_folder_of(data)
    }

    /// Allocate the blocks, which keeps the file in few extents and detects a full disk early.
    /// If the file system does not support this, writing allocates.
    fn allocate(&self, size_bytes: u64) -> Result<(), Failure> {
        let action = format!("cannot allocate {size_bytes} bytes for {}", self.path.display());
        self.file.set_len(0).or_failed(&action)?;
        match fallocate(&self.file, FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            allocated => allocated.or_failed(action),
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.finished {
            // The failure that led here is being reported already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuse a file with fewer allocated blocks than its length: reading a hole never reaches the
/// disk. Fails if the file has holes, or its file system compresses it.
pub fn require_no_holes(file: &File, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let status = file.metadata().or_failed(format!("cannot examine {shown}"))?;
    let allocated_bytes = status.blocks() * 512; // st_blocks counts units of 512 bytes, stat(2)
    if allocated_bytes < status.len() {
        let length = status.len();
        return Err(Failure::Failed(format!(
            "{shown} has {allocated_bytes} of its {length} bytes allocated, so reading it would not reach the disk: \
             use a file system that neither compresses nor leaves holes"
        )));
    }
    Ok(())
}

/// Make the changed names in a file's folder durable. Fails if the folder cannot be opened or
/// flushed.
pub fn sync_folder_of(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    File::open(folder)
        .and_then(|opened| opened.sync_all())
        .or_failed(format!("cannot flush the folder {}", folder.display()))
}

/// Return `path` with a suffix added to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Lock the file: two writers would mix their bytes. The kernel releases the lock when the process
/// ends.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    let busy = || Failure::Failed(format!("another process is writing {}", path.display()));
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| busy())?;
    // Between opening and locking, the other writer may have finished and given this file its final
    // name.
    let inode = |status: std::io::Result<std::fs::Metadata>| {
        status.map(|status| (status.dev(), status.ino())).ok()
    };
    let same = inode(file.metadata()) == inode(std::fs::metadata(path));
    same.then_some(()).ok_or_else(busy)
}

fn require_room(data: &Path, size_bytes: u64) -> Result<(), Failure> {
    let folder = folder_of(data);
    let found = statvfs(folder).or_failed(format!("cannot use the folder {}", folder.display()))?;
    let available_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    if available_bytes < size_bytes {
        return Err(Failure::Failed(format!(
            "the disk of {} is too full: {size_bytes} bytes are needed, {available_bytes} are free",
            folder.display()
        )));
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
