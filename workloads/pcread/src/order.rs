//! In which order the blocks of a range are visited.

use crate::stride::Stride;
use contract::mix::mix;
use contract::permutation::Permutation;

/// The name of an order, as the arguments have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Front to back.
    Sequential,
    /// Every block exactly once, in an order drawn from the seed.
    Random,
    /// Every block exactly once, each so many blocks behind the one before: a prime, added up, never multiplied.
    PrimeStride,
    /// The article's product modulo the size, in 64 bits, overflow and all.
    SeedOverflow,
    /// The same product cut to fewer bits where the file is smaller than the article's, so that the same share of
    /// the products overflows.
    SeedOverflowScaled,
}

impl Pattern {
    /// Whether every block is visited exactly once.
    #[must_use]
    pub fn visits_all(self) -> bool {
        !matches!(self, Self::SeedOverflow | Self::SeedOverflowScaled)
    }
}

/// The order of one pass over one thread's range: an iterator over block numbers.
#[derive(Debug)]
pub enum Order {
    /// The n-th block comes n-th.
    Sequential,
    /// The permutation says which block comes n-th.
    Random(Permutation),
    /// Each block lies a stride behind the one before.
    Stride(Stride),
}

impl Order {
    /// The order for a pass of a thread. Each pass and each thread draws its own: repeating one order would make
    /// the first pass a rehearsal of the second. A stride is the same each time, as in the article.
    #[must_use]
    pub fn new(pattern: Pattern, count: u64, seed: u64, thread: u64, pass: u64) -> Self {
        match pattern {
            Pattern::Random => Self::Random(Permutation::new(count, mix(seed ^ mix(thread ^ mix(pass))))),
            Pattern::PrimeStride => Self::Stride(Stride::new(count)),
            _ => Self::Sequential,
        }
    }

    /// Which block comes at this position; to be asked for one position after the other.
    #[inline]
    #[must_use]
    pub fn at(&mut self, position: u64) -> u64 {
        match self {
            Self::Sequential => position,
            Self::Random(permutation) => permutation.at(position),
            Self::Stride(stride) => stride.next_place(),
        }
    }
}
