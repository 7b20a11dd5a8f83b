//! The program's own loop without `io_uring`: one thread for each I/O in flight.

use crate::interruption;
use crate::tally::Tally;
use crate::work::PhaseWork;
use memmap2::MmapMut;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::Instant;

/// Small, because the cage may be small.
const STACK_BYTES: usize = 128 << 10;

/// Do the work and count it. Fails with the error of an I/O, or that a thread cannot be started.
pub fn drive(work: &PhaseWork<'_>) -> io::Result<Tally> {
    let next = AtomicU64::new(0);
    let mut all = Tally::new(work.begun, work.phase.time);
    thread::scope(|scope| {
        let start =
            || Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || one(work, &next));
        let started: Vec<_> = (0..work.phase.depth).map(|_| start()).collect::<io::Result<_>>()?;
        for thread in started {
            let counted = thread.join().map_err(|_| io::Error::other("a thread gave up"))??;
            all.merge(&counted);
        }
        Ok(all)
    })
}

fn one(work: &PhaseWork<'_>, next: &AtomicU64) -> io::Result<Tally> {
    let mut memory = MmapMut::map_anon(work.phase.block_bytes)?;
    work.fill(&mut memory);
    let mut tally = Tally::new(work.begun, work.phase.time);
    while Instant::now() < work.deadline() && !interruption::is_requested() {
        let offset = work.offset(next.fetch_add(1, Ordering::Relaxed));
        let submitted = Instant::now();
        match transfer(work, &mut memory, offset) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            done => {
                work.whole(i32::try_from(done?).unwrap_or(i32::MAX))?;
                tally.add(submitted, Instant::now());
            }
        }
    }
    Ok(tally)
}

fn transfer(work: &PhaseWork<'_>, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    if work.phase.writes {
        work.file.write_at(memory, offset)
    } else {
        work.file.read_at(memory, offset)
    }
}
