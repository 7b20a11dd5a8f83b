//! Memory of a thread's own that begins at a page, as direct reads and registered buffers want it.

use memmap2::MmapMut;
use std::io;

/// Anonymous memory, returned to the system when dropped.
#[derive(Debug)]
pub struct Pool(MmapMut);

impl Pool {
    /// So many bytes of memory.
    ///
    /// # Errors
    /// When the system has none.
    pub fn new(bytes: usize) -> io::Result<Self> {
        MmapMut::map_anon(bytes).map(Self)
    }

    /// To be looked at.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// To be written to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Where a byte of it lies.
    pub fn address(&mut self, at: usize) -> *mut u8 {
        self.0[at..].as_mut_ptr()
    }
}
