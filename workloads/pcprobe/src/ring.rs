//! The program's own loop on `io_uring`: one thread, with a full queue of I/Os in flight.

use crate::interruption;
use crate::tally::Tally;
use crate::work::PhaseWork;
use io_uring::{opcode, squeue, types, IoUring};
use memmap2::MmapMut;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Check that this kernel has `io_uring` and permits it; containers often forbid it. Fails with the
/// error of the system.
pub fn is_allowed() -> io::Result<()> {
    IoUring::new(1).map(|_| ())
}

/// Do the work and count it. Fails with the error of an I/O, after all others in flight have ended.
pub fn drive(work: &PhaseWork<'_>) -> io::Result<Tally> {
    let depth = work.phase.depth;
    let mut queue = Queue::new(work)?;
    for slot in 0..depth {
        queue.submit(slot)?;
    }
    while queue.in_flight > 0 {
        if let Err(cause) = queue.wait() {
            std::mem::forget(queue); // I/Os may still be in flight, so their memory must stay
            return Err(cause);
        }
        queue.collect();
    }
    queue.failure.map_or(Ok(queue.tally), Err)
}

struct Queue<'a> {
    // The ring is dropped before the memory that its I/Os use.
    ring: IoUring,
    memory: MmapMut,
    work: &'a PhaseWork<'a>,
    submitted: Vec<Instant>,
    next: u64,
    in_flight: usize,
    failure: Option<io::Error>,
    tally: Tally,
}

impl<'a> Queue<'a> {
    #[allow(clippy::cast_possible_truncation)] // depths are small
    fn new(work: &'a PhaseWork<'a>) -> io::Result<Self> {
        let depth = work.phase.depth;
        let mut memory = MmapMut::map_anon(depth * work.phase.block_bytes)?;
        work.fill(&mut memory);
        Ok(Self {
            ring: IoUring::new(depth.next_power_of_two() as u32)?,
            memory,
            work,
            submitted: vec![Instant::now(); depth],
            next: 0,
            in_flight: 0,
            failure: None,
            tally: Tally::new(work.begun, work.phase.time),
        })
    }

    fn submit(&mut self, slot: usize) -> io::Result<()> {
        let entry = self.entry(slot).user_data(slot as u64);
        self.next += 1;
        self.submitted[slot] = Instant::now();
        // SAFETY: the memory outlives every I/O in flight, because `drive` waits for all of them.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.in_flight += 1;
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)] // a block is 1 MiB at most
    fn entry(&mut self, slot: usize) -> squeue::Entry {
        let (block, file) = (self.work.phase.block_bytes, types::Fd(self.work.file.as_raw_fd()));
        let place = &mut self.memory[slot * block..][..block];
        let offset = self.work.offset(self.next);
        if self.work.phase.writes {
            return opcode::Write::new(file, place.as_ptr(), block as u32).offset(offset).build();
        }
        opcode::Read::new(file, place.as_mut_ptr(), block as u32).offset(offset).build()
    }

    /// Wait for at least one I/O. A signal is not an error: the loop checks whether it interrupts
    /// the phase.
    fn wait(&self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(cause) if cause.kind() != io::ErrorKind::Interrupted => Err(cause),
            _ => Ok(()),
        }
    }

    fn collect(&mut self) {
        let ended: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        let now = Instant::now();
        for (slot, result) in ended {
            self.in_flight -= 1;
            self.take(usize::try_from(slot).unwrap_or_default(), result, now);
        }
    }

    fn take(&mut self, slot: usize, result: i32, now: Instant) {
        if let Err(cause) = self.work.whole(result) {
            self.failure.get_or_insert(cause);
            return;
        }
        self.tally.add(self.submitted[slot], now);
        if self.failure.is_none() && now < self.work.deadline() && !interruption::is_requested() {
            if let Err(cause) = self.submit(slot) {
                self.failure = Some(cause);
            }
        }
    }
}
