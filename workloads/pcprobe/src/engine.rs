//! What drives the disk, and the work it is given.

use crate::arguments::Wish;
use crate::fio::Fio;
use crate::phase::Phase;
use crate::tally::Figures;
use crate::{ring, threads};
use contract::mix::{mix, GOLDEN_GAMMA};
use contract::permutation::Permutation;
use contract::Failure;
use serde_json::{json, Value};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// What drives the disk.
#[derive(Debug)]
pub enum Engine {
    /// The program's own loop on `io_uring`.
    IoUring,
    /// The program's own loop of threads; why not `io_uring`.
    Threads(String),
    /// fio.
    Fio(Fio),
}

/// One phase on one file.
#[derive(Debug)]
pub struct Work<'a> {
    /// What is to be done.
    pub phase: &'a Phase,
    /// On which file.
    pub file: &'a File,
    /// How much of the file there is.
    pub area_bytes: u64,
    /// Whether it was opened with `O_DIRECT`.
    pub direct: bool,
    /// Since when.
    pub begun: Instant,
    order: Option<Permutation>,
}

impl<'a> Work<'a> {
    /// The phase, beginning now. Random blocks come in an order that visits each once before it visits any twice.
    #[must_use]
    pub fn new(phase: &'a Phase, file: &'a File, area_bytes: u64, direct: bool, seed: u64) -> Self {
        let blocks = area_bytes / phase.block_bytes as u64;
        let order = phase.random.then(|| Permutation::new(blocks, seed));
        Self { phase, file, area_bytes, direct, begun: Instant::now(), order }
    }

    /// When nothing more is submitted.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.begun + self.phase.time
    }

    /// Where the block of this number lies.
    #[must_use]
    pub fn offset(&self, number: u64) -> u64 {
        let blocks = self.area_bytes / self.phase.block_bytes as u64;
        let block = number % blocks;
        self.order.as_ref().map_or(block, |order| order.at(block)) * self.phase.block_bytes as u64
    }

    /// Content that no disk can compress.
    pub fn fill(&self, memory: &mut [u8]) {
        let mut word = self.phase.depth as u64;
        for place in memory.chunks_exact_mut(8) {
            word = word.wrapping_add(GOLDEN_GAMMA);
            place.copy_from_slice(&mix(word).to_le_bytes());
        }
    }

    /// Whether an I/O that returned this moved its whole block.
    ///
    /// # Errors
    /// What the system says, or that it moved less.
    pub fn whole(&self, result: i32) -> io::Result<()> {
        match usize::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
            Ok(moved) if moved == self.phase.block_bytes => Ok(()),
            Ok(moved) => {
                Err(io::Error::other(format!("{moved} of {} bytes were moved", self.phase.block_bytes)))
            }
        }
    }
}

impl Engine {
    /// The engine that was wished for, or the best one there is.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] when it was named and is not there.
    pub fn choose(wish: Wish) -> Result<Self, Failure> {
        let cannot = |why: String| Err(Failure::CannotHere(why));
        match (wish, ring::is_allowed()) {
            (Wish::Fio, _) => Fio::find().map(Self::Fio).or_else(cannot),
            (Wish::Threads, _) => Ok(Self::Threads("asked for".to_owned())),
            (Wish::IoUring, Err(why)) => cannot(format!("there is no io_uring here: {why}")),
            (Wish::Auto, ring) => Ok(Fio::find().map_or_else(|_| Self::own(ring), Self::Fio)),
            (_, ring) => Ok(Self::own(ring)),
        }
    }

    fn own(ring: io::Result<()>) -> Self {
        match ring {
            Ok(()) => Self::IoUring,
            Err(why) => Self::Threads(format!("there is no io_uring here: {why}")),
        }
    }

    /// Does the work and counts it. The time is that during which I/Os were submitted.
    ///
    /// # Errors
    /// What the system, or fio, says.
    pub fn drive(&self, work: &Work<'_>) -> io::Result<Figures> {
        let counted = match self {
            Self::Fio(fio) => return fio.drive(work),
            Self::IoUring => ring::drive(work)?,
            Self::Threads(_) => threads::drive(work)?,
        };
        let elapsed: Duration = work.begun.elapsed();
        Ok(counted.figures(elapsed.min(work.phase.time)))
    }

    /// As it stands in the JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::IoUring => json!({"name": "io_uring", "version": null, "reason": null}),
            Self::Threads(why) => json!({"name": "threads", "version": null, "reason": why}),
            Self::Fio(fio) => json!({"name": "fio", "version": fio.version, "reason": fio.ioengine}),
        }
    }

    /// What is said of it before it begins.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::IoUring => "its own io_uring loop".to_owned(),
            Self::Threads(_) => "its own threads".to_owned(),
            Self::Fio(fio) => format!("{} with {}", fio.version, fio.ioengine),
        }
    }
}
