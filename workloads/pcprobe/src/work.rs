//! The work of one phase on one file, which every engine does.

use crate::phase::Phase;
use contract::mixing_hash::{mix, GOLDEN_GAMMA};
use contract::permutation::Permutation;
use std::fs::File;
use std::io;
use std::time::Instant;

/// One phase on one file.
#[derive(Debug)]
pub struct PhaseWork<'a> {
    pub phase: &'a Phase,
    pub file: &'a File,
    /// Length of the part of the file that is used.
    pub area_bytes: u64,
    /// Whether the file was opened with `O_DIRECT`.
    pub direct: bool,
    /// When the phase began.
    pub begun: Instant,
    order: Option<Permutation>,
}

impl<'a> PhaseWork<'a> {
    /// Begin the phase now. A random order visits each block once before it visits any twice.
    pub fn new(phase: &'a Phase, file: &'a File, area_bytes: u64, direct: bool, seed: u64) -> Self {
        let blocks = area_bytes / phase.block_bytes as u64;
        let order = phase.random.then(|| Permutation::new(blocks, seed));
        Self { phase, file, area_bytes, direct, begun: Instant::now(), order }
    }

    /// Return the time from which on nothing more is submitted.
    pub fn deadline(&self) -> Instant {
        self.begun + self.phase.time
    }

    /// Return the offset of the n-th block.
    pub fn offset(&self, number: u64) -> u64 {
        let blocks = self.area_bytes / self.phase.block_bytes as u64;
        let block = number % blocks;
        self.order.as_ref().map_or(block, |order| order.at(block)) * self.phase.block_bytes as u64
    }

    /// Fill memory with content that no disk can compress.
    pub fn fill(&self, memory: &mut [u8]) {
        let mut word = self.phase.depth as u64;
        for place in memory.chunks_exact_mut(8) {
            word = word.wrapping_add(GOLDEN_GAMMA);
            place.copy_from_slice(&mix(word).to_le_bytes());
        }
    }

    /// Check that an I/O with this result moved its whole block.
    ///
    /// # Errors
    /// The error that a negative result stands for, or that fewer bytes were moved.
    pub fn whole(&self, result: i32) -> io::Result<()> {
        match usize::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
            Ok(moved) if moved == self.phase.block_bytes => Ok(()),
            Ok(moved) => Err(io::Error::other(format!(
                "{moved} of {} bytes were moved",
                self.phase.block_bytes
            ))),
        }
    }
}
