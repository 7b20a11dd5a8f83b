//! The state of the page cache: creating the one that the burst meets, and measuring it.

use clap::ValueEnum;
use contract::data_files::create_unnamed;
use contract::failure::OrFailure;
use contract::page_cache::{cachestat, page_bytes, CacheStat};
use contract::Failure;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const PIECE_BYTES: usize = 1 << 20;

/// The state of the page cache before the burst.
#[derive(Debug, Clone, clap::Args)]
pub struct PageCacheOptions {
    /// State of the page cache before the burst
    #[arg(long, value_enum, default_value = "empty")]
    page_cache: PageCache,
    /// The file it is filled with
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Folder in which the copy for a dirty page cache is made; the copy has no name and disappears
    /// with the process
    #[arg(long = "dir", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The state of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PageCache {
    /// Nothing of this program
    Empty,
    /// A file that was read
    Clean,
    /// A file that was written and is not on the disk yet, as far as the kernel permits
    Dirty,
}

impl PageCacheOptions {
    /// Check that the files exist which the state needs. Fails with [`Failure::BadArguments`]
    /// naming the missing option.
    pub fn validate(&self) -> Result<(), Failure> {
        let refuse = |reason: &str| Err(Failure::BadArguments(reason.to_owned()));
        if self.page_cache != PageCache::Empty && self.file.is_none() {
            return refuse("--page-cache clean or dirty needs a --file to fill it with");
        }
        if self.page_cache == PageCache::Dirty && self.folder.is_none() {
            return refuse("--page-cache dirty needs a --dir for the copy that it writes");
        }
        Ok(())
    }

    /// Fill the page cache. Returns the file whose pages it holds, kept open so that they stay;
    /// None if it stays empty. Fails if the file cannot be read, or its copy cannot be written.
    pub fn fill(&self) -> Result<Option<File>, Failure> {
        let Some(path) = self.file.as_deref().filter(|_| self.page_cache != PageCache::Empty)
        else {
            return Ok(None);
        };
        let shown = path.display();
        let mut file = File::open(path).or_failed(format!("cannot open {shown}"))?;
        if self.page_cache == PageCache::Clean {
            each_piece(&mut file, |_| Ok(())).or_failed(format!("cannot read {shown}"))?;
            return Ok(Some(file));
        }
        copy_into(&mut file, self.folder.as_deref().unwrap_or(Path::new("."))).map(Some)
    }
}

/// A file's bytes in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedBytes {
    pub cached: u64,
    /// Those that are not on the disk yet.
    pub unwritten: u64,
}

/// Copy a file. Copying also reads: the last pages written push out what was read for them.
fn copy_into(file: &mut File, folder: &Path) -> Result<File, Failure> {
    let shown = folder.display();
    let mut copy =
        create_unnamed(folder, "pcburst", 0).or_failed(format!("cannot make a file in {shown}"))?;
    each_piece(file, |piece| copy.write_all(piece))
        .or_failed(format!("cannot write a copy in {shown}"))?;
    Ok(copy)
}

fn each_piece(
    file: &mut File,
    mut work: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
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

/// Return the file's bytes in the page cache; zero without a file, None if the kernel does not tell
/// (before 6.5).
pub fn cached_bytes(file: Option<&File>) -> Option<CachedBytes> {
    let found = file.map_or(Some(CacheStat::default()), |file| cachestat(file).ok())?;
    let page = page_bytes() as u64;
    Some(CachedBytes {
        cached: found.cache_pages * page,
        unwritten: found.unwritten_pages() * page,
    })
}
