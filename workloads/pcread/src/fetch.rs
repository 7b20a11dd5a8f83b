//! How a thread gets at the blocks of its route: one small trait, and what stands behind it.

pub mod announced;
pub mod direct_cache;
pub mod memory;
pub mod pread;
pub mod queued;

use std::io;
use std::ops::Range;

/// A thread's own way to the bytes. Blocks are asked for, and taken when they are there: one after the other where
/// reading waits, many at a time where it need not.
pub trait Fetch {
    /// Whether another block may be asked for before one is taken.
    fn has_room(&self) -> bool;

    /// Asks for a block.
    ///
    /// # Errors
    /// What the system says.
    fn ask(&mut self, span: Range<usize>) -> io::Result<()>;

    /// The bytes of a block that was asked for, whichever is there first; none where none is left.
    ///
    /// # Errors
    /// What the system says, or that the file has become shorter.
    fn take(&mut self) -> io::Result<Option<&[u8]>>;

    /// Waits for what was asked for and not taken, and drops it.
    ///
    /// # Errors
    /// What the system says.
    fn forget(&mut self) -> io::Result<()> {
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Blocks that were found in a cache of the process, and all that were asked for; none where it has no cache.
    fn hits(&self) -> Option<(u64, u64)> {
        None
    }
}
