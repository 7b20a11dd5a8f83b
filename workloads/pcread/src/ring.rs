//! `io_uring` for reads of one file into one pool of memory.

use crate::fetch::pread::read_all;
use crate::pool::Pool;
use io_uring::{opcode, squeue, types, IoUring};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The kernel takes no longer piece of memory as one registered buffer, `io_uring_register(2)`.
const LARGEST_REGISTERED_BYTES: usize = 1 << 30;

/// A queue is told about its reads in so many parts: one by one costs a call each, all at once lets the disk run dry.
const BATCHES: usize = 8;

/// A ring of one thread. Reads are told apart by the number that they are given.
pub struct Ring<'a> {
    // The ring is dropped before the memory that its reads write to.
    ring: IoUring,
    pool: Pool,
    file: &'a File,
    registered_file: bool,
    registered_pool: bool,
    in_flight: usize,
    /// Reads that the kernel has not been told about yet, and how many of them are worth a call.
    unsaid: usize,
    batch: usize,
}

/// A read that is done.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// The number that the read was given.
    pub tag: u64,
    /// How many bytes it brought.
    pub bytes: usize,
}

impl<'a> Ring<'a> {
    /// A ring for `depth` reads at a time into a pool of so many bytes.
    ///
    /// # Errors
    /// When this kernel, or what guards it, has no `io_uring`, or there is no memory.
    pub fn new(file: &'a File, depth: u32, pool_bytes: usize) -> io::Result<Self> {
        let ring = quietest(depth.next_power_of_two())?;
        let mut pool = Pool::new(pool_bytes)?;
        // Both spare work a read; where they are refused, reads name the file and the memory instead.
        let registered_file = ring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        let registered_pool = pool_bytes <= LARGEST_REGISTERED_BYTES && register(&ring, &mut pool);
        let batch = (depth as usize).div_ceil(BATCHES);
        Ok(Self { ring, pool, file, registered_file, registered_pool, in_flight: 0, unsaid: 0, batch })
    }

    /// The pool, to be looked at where no read is writing.
    #[must_use]
    pub fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.pool.bytes()[place]
    }

    /// Prepares a read from an offset of the file to a place of the pool.
    ///
    /// # Errors
    /// When more are asked for than the ring was made for and the kernel takes none.
    pub fn push(&mut self, offset: u64, place: Range<usize>, tag: u64) -> io::Result<()> {
        let entry = self.entry(offset, place).user_data(tag);
        // SAFETY: the pool outlives every read in flight (see `drop`), and the place lies within it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        self.in_flight += 1;
        self.unsaid += 1;
        if self.unsaid >= self.batch {
            self.ring.submit()?;
            self.unsaid = 0;
        }
        Ok(())
    }

    /// The next read that is done, waited for where none is; none where none is in flight.
    ///
    /// # Errors
    /// What the system says of the read.
    pub fn next_done(&mut self) -> io::Result<Option<Done>> {
        while self.in_flight > 0 {
            if let Some(entry) = self.ring.completion().next() {
                self.in_flight -= 1;
                let bytes = usize::try_from(entry.result())
                    .map_err(|_| io::Error::from_raw_os_error(-entry.result()))?;
                return Ok(Some(Done { tag: entry.user_data(), bytes }));
            }
            self.unsaid = 0;
            match self.ring.submit_and_wait(1) {
                Err(cause) if cause.kind() != io::ErrorKind::Interrupted => return Err(cause),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads again, waiting, what the kernel brought only a part of: `wanted` bytes at least.
    ///
    /// # Errors
    /// What the system says, or that the file ends before.
    pub fn read_again(&mut self, offset: u64, place: Range<usize>, wanted: usize) -> io::Result<()> {
        read_all(self.file, &mut self.pool.bytes_mut()[place], offset, wanted)
    }

    #[allow(clippy::cast_possible_truncation)] // no block is as long as 4 GiB
    fn entry(&mut self, offset: u64, place: Range<usize>) -> squeue::Entry {
        let (address, length) = (self.pool.address(place.start), place.len() as u32);
        match (self.registered_file, self.registered_pool) {
            (true, true) => {
                opcode::ReadFixed::new(types::Fixed(0), address, length, 0).offset(offset).build()
            }
            (true, false) => opcode::Read::new(types::Fixed(0), address, length).offset(offset).build(),
            (false, true) => opcode::ReadFixed::new(types::Fd(self.file.as_raw_fd()), address, length, 0)
                .offset(offset)
                .build(),
            (false, false) => {
                opcode::Read::new(types::Fd(self.file.as_raw_fd()), address, length).offset(offset).build()
            }
        }
    }
}

impl Drop for Ring<'_> {
    /// Memory must not go while the kernel writes to it.
    fn drop(&mut self) {
        let mut before = usize::MAX;
        // A failed read is done too; a ring that gives nothing more at all is left to the kernel.
        while self.in_flight > 0 && self.in_flight < before {
            before = self.in_flight;
            let _ = self.next_done();
        }
    }
}

/// The ring with the flags that save the most work, as far as this kernel knows them, `io_uring_setup(2)`: Linux 6.1
/// runs completions when asked for them, Linux 5.19 without interrupting.
fn quietest(entries: u32) -> io::Result<IoUring> {
    let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    deferred
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(entries))
        .or_else(|_| IoUring::builder().build(entries))
}

fn register(ring: &IoUring, pool: &mut Pool) -> bool {
    let buffer = libc::iovec { iov_base: pool.address(0).cast(), iov_len: pool.bytes().len() };
    // SAFETY: the pool is dropped after the ring, and nothing moves it.
    unsafe { ring.submitter().register_buffers(&[buffer]) }.is_ok()
}
