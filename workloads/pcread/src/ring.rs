//! `io_uring` for reads of one file into one buffer, which begins at a page as direct reads and
//! registered buffers require.

use crate::positioned_read::read_all;
use io_uring::{opcode, squeue, types, IoUring};
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The longest memory that the kernel accepts as one registered buffer, `io_uring_register(2)`.
const LARGEST_REGISTERED_BYTES: usize = 1 << 30;

/// Reads of a full queue are submitted in this many parts: one by one costs a call each, all at
/// once idles the disk.
const BATCHES: usize = 8;

/// A ring of one thread. Each read has a number.
pub struct Ring<'a> {
    // The ring is dropped before the memory that its reads write to.
    ring: IoUring,
    buffer: MmapMut,
    file: &'a File,
    registered_file: bool,
    registered_buffer: bool,
    in_flight: usize,
    /// Reads that are not submitted yet, and the number of them that is worth a call.
    unsubmitted: usize,
    batch: usize,
}

/// A completed read.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub tag: u64,
    /// Number of bytes that were read.
    pub bytes: usize,
}

impl<'a> Ring<'a> {
    /// Create a ring for `depth` reads at a time into a buffer of this length. Fails without
    /// `io_uring` or memory, or if a security policy forbids `io_uring`.
    pub fn new(file: &'a File, depth: u32, buffer_bytes: usize) -> io::Result<Self> {
        let ring = build_ring(depth.next_power_of_two())?;
        let mut buffer = MmapMut::map_anon(buffer_bytes)?;
        // Both save work per read. If the kernel refuses them, reads name the file and the memory
        // instead.
        let registered_file = ring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        let registered_buffer =
            buffer_bytes <= LARGEST_REGISTERED_BYTES && register(&ring, &mut buffer);
        let batch = (depth as usize).div_ceil(BATCHES);
        Ok(Self {
            ring,
            buffer,
            file,
            registered_file,
            registered_buffer,
            in_flight: 0,
            unsubmitted: 0,
            batch,
        })
    }

    /// Return part of the buffer, to which no read is writing.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Prepare a read from an offset of the file into part of the buffer. Fails if there are more
    /// reads than the ring was made for and the kernel accepts none.
    pub fn push(&mut self, offset: u64, range: Range<usize>, tag: u64) -> io::Result<()> {
        let entry = self.entry(offset, range).user_data(tag);
        // SAFETY: the buffer outlives every read in flight (see `drop`), and the range lies within
        // it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        self.in_flight += 1;
        self.unsubmitted += 1;
        if self.unsubmitted >= self.batch {
            self.ring.submit()?;
            self.unsubmitted = 0;
        }
        Ok(())
    }

    /// Wait for the next completed read; None if none is in flight. Fails with the error of the
    /// read.
    pub fn next_done(&mut self) -> io::Result<Option<Done>> {
        while self.in_flight > 0 {
            if let Some(entry) = self.ring.completion().next() {
                self.in_flight -= 1;
                let bytes = usize::try_from(entry.result())
                    .map_err(|_| io::Error::from_raw_os_error(-entry.result()))?;
                return Ok(Some(Done { tag: entry.user_data(), bytes }));
            }
            self.unsubmitted = 0;
            match self.ring.submit_and_wait(1) {
                Err(cause) if cause.kind() != io::ErrorKind::Interrupted => return Err(cause),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Repeat, waiting, a read that was incomplete: at least `wanted` bytes. Fails if the read
    /// fails, or the file ends before.
    pub fn read_again(
        &mut self,
        offset: u64,
        range: Range<usize>,
        wanted: usize,
    ) -> io::Result<()> {
        read_all(self.file, &mut self.buffer[range], offset, wanted)
    }

    #[allow(clippy::cast_possible_truncation)] // no block is as long as 4 GiB
    fn entry(&mut self, offset: u64, range: Range<usize>) -> squeue::Entry {
        let (address, length) = (self.buffer[range.start..].as_mut_ptr(), range.len() as u32);
        match (self.registered_file, self.registered_buffer) {
            (true, true) => {
                opcode::ReadFixed::new(types::Fixed(0), address, length, 0).offset(offset).build()
            }
            (true, false) => {
                opcode::Read::new(types::Fixed(0), address, length).offset(offset).build()
            }
            (false, true) => {
                opcode::ReadFixed::new(types::Fd(self.file.as_raw_fd()), address, length, 0)
                    .offset(offset)
                    .build()
            }
            (false, false) => opcode::Read::new(types::Fd(self.file.as_raw_fd()), address, length)
                .offset(offset)
                .build(),
        }
    }
}

impl Drop for Ring<'_> {
    /// The memory must stay while the kernel writes to it.
    fn drop(&mut self) {
        let mut before = usize::MAX;
        // A failed read is completed too. A ring that returns nothing more is left to the kernel.
        while self.in_flight > 0 && self.in_flight < before {
            before = self.in_flight;
            let _ = self.next_done();
        }
    }
}

/// Build a ring with the flags that save the most work and that this kernel supports,
/// `io_uring_setup(2)`: Linux 6.1 runs completions on request, Linux 5.19 without interrupting.
fn build_ring(entries: u32) -> io::Result<IoUring> {
    let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    deferred
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(entries))
        .or_else(|_| IoUring::builder().build(entries))
}

fn register(ring: &IoUring, buffer: &mut MmapMut) -> bool {
    let memory = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the buffer is dropped after the ring, and nothing moves it.
    unsafe { ring.submitter().register_buffers(&[memory]) }.is_ok()
}
