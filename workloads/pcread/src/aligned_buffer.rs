//! Memory of one thread that begins at a page, as direct reads and registered buffers require.

use memmap2::MmapMut;
use std::io;

/// Anonymous memory, returned to the system when dropped.
#[derive(Debug)]
pub struct AlignedBuffer(MmapMut);

impl AlignedBuffer {
    /// Allocate this many bytes. Fails without memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        MmapMut::map_anon(bytes).map(Self)
    }

    /// Return the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Return the bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Return the address of a byte.
    pub fn address(&mut self, at: usize) -> *mut u8 {
        self.0[at..].as_mut_ptr()
    }
}
