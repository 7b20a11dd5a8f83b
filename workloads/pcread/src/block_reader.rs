//! Access to the blocks of a sequence: one small trait, and its implementations.

pub mod direct_cache;
pub mod memory;
pub mod pread;
pub mod queued;
pub mod will_need;

use std::io;
use std::ops::Range;

/// A thread's access to the bytes. Blocks are requested, and taken when they are available: one
/// after the other if reading waits, many at a time if it does not.
pub trait BlockReader {
    /// Return whether another block may be requested before one is taken.
    fn has_room(&self) -> bool;

    /// Request a block. Fails with the error of the system.
    fn request(&mut self, span: Range<usize>) -> io::Result<()>;

    /// Return the bytes of the requested block that is available first; None if none is left. Fails
    /// with the error of the system, or if the file has become shorter.
    fn take(&mut self) -> io::Result<Option<&[u8]>>;

    /// Wait for blocks that were requested and not taken, and drop them. Fails with the error of
    /// the system.
    fn discard(&mut self) -> io::Result<()> {
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Return the blocks found in a cache of the process, and all requested blocks; None without
    /// such a cache.
    fn hits(&self) -> Option<(u64, u64)> {
        None
    }
}
