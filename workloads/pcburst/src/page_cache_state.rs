//! Bringing the page cache into the state that the burst meets, and saying what that really was.

use crate::arguments::{PageCache, Plan};
use contract::page::page_bytes;
use contract::page_cache::{cachestat, CacheStat};
use contract::Failure;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::path::Path;

const PIECE_BYTES: usize = 1 << 20;

/// The file whose pages are in the cache, kept open so that they stay; none where there is none.
///
/// # Errors
/// When the file cannot be read, or its copy not be written.
pub fn reach(plan: &Plan) -> Result<Option<File>, Failure> {
    let Some(path) = plan.file.as_deref().filter(|_| plan.page_cache != PageCache::Empty) else {
        return Ok(None);
    };
    let shown = path.display();
    let mut file = File::open(path).map_err(|cause| Failure::of(format!("cannot open {shown}"), cause))?;
    if plan.page_cache == PageCache::Clean {
        each_piece(&mut file, |_| Ok(()))
            .map_err(|cause| Failure::of(format!("cannot read {shown}"), cause))?;
        return Ok(Some(file));
    }
    copy(&mut file, plan.folder.as_deref().unwrap_or(Path::new("."))).map(Some)
}

/// Copying reads, too: the last pages that were written push out what was read for them.
fn copy(file: &mut File, folder: &Path) -> Result<File, Failure> {
    let shown = folder.display();
    let mut copy =
        nameless(folder).map_err(|cause| Failure::of(format!("cannot make a file in {shown}"), cause))?;
    each_piece(file, |piece| copy.write_all(piece))
        .map_err(|cause| Failure::of(format!("cannot write a copy in {shown}"), cause))?;
    Ok(copy)
}

fn nameless(folder: &Path) -> Result<File, Error> {
    let path = folder.join(format!(".pcburst-{}", std::process::id()));
    let file = File::options().create_new(true).read(true).write(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn each_piece(file: &mut File, mut work: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => work(&piece[..length])?,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
}

/// What of the file is in the cache, and what of that is not on the disk, in bytes. Zero where there is no file; none
/// where the kernel would not say (before 6.5).
#[must_use]
pub fn cached_and_unwritten_bytes(file: Option<&File>) -> Option<(u64, u64)> {
    let found = file.map_or(Some(CacheStat::default()), |file| cachestat(file).ok())?;
    let page = page_bytes() as u64;
    Some((found.cache_pages * page, found.unwritten_pages() * page))
}
