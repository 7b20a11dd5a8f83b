//! In which order the blocks of a range are visited.

use crate::permutation::Permutation;
use contract::mix::mix;

/// The name of an order, as the arguments have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Front to back.
    Sequential,
    /// Every block exactly once, in an order drawn from the seed.
    Random,
}

/// The order of one pass over one thread's range.
#[derive(Debug)]
pub enum Order {
    /// The n-th block comes n-th.
    Sequential,
    /// The permutation says which block comes n-th.
    Random(Permutation),
}

impl Order {
    /// The order for a pass of a thread. Each pass and each thread draws its own: repeating one order would make
    /// the first pass a rehearsal of the second.
    #[must_use]
    pub fn new(pattern: Pattern, count: u64, seed: u64, thread: u64, pass: u64) -> Self {
        match pattern {
            Pattern::Sequential => Self::Sequential,
            Pattern::Random => Self::Random(Permutation::new(count, mix(seed ^ mix(thread ^ mix(pass))))),
        }
    }

    /// Which block comes at this position.
    #[inline]
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        match self {
            Self::Sequential => position,
            Self::Random(permutation) => permutation.at(position),
        }
    }
}
