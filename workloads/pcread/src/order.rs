//! The order in which the blocks of a range are visited.

use crate::stride::Stride;
use clap::ValueEnum;
use contract::mixing_hash::mix;
use contract::permutation::Permutation;

/// An order, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Front to back
    Sequential,
    /// Every block exactly once, in an order drawn from the seed
    Random,
    /// Every block exactly once, at the distance of a prime from the previous one
    PrimeStride,
    /// The article's product modulo the size in 64 bits, with its overflow
    SeedOverflow,
    /// The same product, cut to fewer bits for a file smaller than the article's, so that the same
    /// share of the products overflows
    SeedOverflowScaled,
}

impl Pattern {
    /// Return whether every block is visited exactly once.
    pub fn visits_all(self) -> bool {
        !matches!(self, Self::SeedOverflow | Self::SeedOverflowScaled)
    }
}

/// The order of one pass over one thread's range: an iterator over block numbers.
#[derive(Debug)]
pub enum Order {
    /// The n-th block comes n-th.
    Sequential,
    /// The permutation determines the n-th block.
    Random(Permutation),
    /// Each block lies a stride behind the previous one.
    Stride(Stride),
}

impl Order {
    /// Create the order for a pass of a thread. Each pass and each thread has its own: repeating an
    /// order would make the first pass a rehearsal of the second. A stride is the same each time,
    /// as in the article.
    pub fn new(pattern: Pattern, count: u64, seed: u64, thread: u64, pass: u64) -> Self {
        match pattern {
            Pattern::Random => {
                Self::Random(Permutation::new(count, mix(seed ^ mix(thread ^ mix(pass)))))
            }
            Pattern::PrimeStride => Self::Stride(Stride::new(count)),
            _ => Self::Sequential,
        }
    }

    /// Return the block at this position; to be called for one position after the other.
    #[inline]
    pub fn at(&mut self, position: u64) -> u64 {
        match self {
            Self::Sequential => position,
            Self::Random(permutation) => permutation.at(position),
            Self::Stride(stride) => stride.next_position(),
        }
    }
}
