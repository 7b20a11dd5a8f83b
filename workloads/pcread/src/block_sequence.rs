//! The blocks that a thread reads in one pass, in their order.

use crate::blocks::{split, Blocks};
use crate::order::{Order, Pattern};
use crate::overflowing_order::{OverflowingOrder, Share};
use clap::builder::RangedU64ValueParser;
use clap::ValueEnum;
use std::ops::Range;

/// A thread for each of more CPUs than this would mostly wait for the others.
const MOST_THREADS: u64 = 1024;

/// The blocks and their order.
#[derive(Debug, Clone, clap::Args)]
pub struct SequenceOptions {
    /// Order of the blocks
    #[arg(long, value_enum, default_value = "sequential")]
    pub pattern: Pattern,
    /// Length of a block; the last one may be short
    #[arg(long, value_name = "N", default_value_t = 4096)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub block_bytes: usize,
    /// Number of threads, each of which reads a part of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    pub threads: usize,
    /// Part of the working set that each thread reads
    #[arg(long, value_enum, default_value = "disjoint")]
    pub partition: Partition,
    /// The same seed gives the same random order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// The part of the working set that each thread reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Partition {
    /// A part of its own
    Disjoint,
    /// The first part, for all threads: the article's code for several threads, as printed
    SeedBug,
}

/// The working set and its division among the threads.
#[derive(Debug)]
pub struct Partitioning {
    size_bytes: usize,
    parts: Vec<Blocks>,
}

/// The blocks of one thread in one pass.
#[derive(Debug)]
pub enum BlockSequence {
    /// Blocks of the thread's part, in an order that visits each once.
    Blocks {
        /// The part.
        blocks: Blocks,
        /// The order.
        order: Order,
        /// Number of visited blocks.
        position: u64,
    },
    /// The article's order.
    Overflowing(OverflowingOrder),
}

impl Partitioning {
    /// Divide a working set of `size_bytes` among the threads.
    pub fn new(options: &SequenceOptions, size_bytes: usize, page_bytes: usize) -> Self {
        let mut parts = split(size_bytes, options.block_bytes, page_bytes, options.threads);
        if options.partition == Partition::SeedBug {
            parts = vec![parts[0].clone(); options.threads];
        }
        Self { size_bytes, parts }
    }

    /// Return the blocks of a thread in a pass.
    pub fn sequence(&self, options: &SequenceOptions, thread: usize, pass: u64) -> BlockSequence {
        if !options.pattern.visits_all() {
            return BlockSequence::Overflowing(OverflowingOrder::new(self.share(options, thread)));
        }
        let blocks = self.parts[thread].clone();
        let order = Order::new(options.pattern, blocks.count(), options.seed, thread as u64, pass);
        BlockSequence::Blocks { blocks, order, position: 0 }
    }

    /// Return the length of the working set.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn share(&self, options: &SequenceOptions, thread: usize) -> Share {
        Share {
            size_bytes: self.size_bytes as u64,
            block_bytes: options.block_bytes as u64,
            thread: thread as u64,
            threads: options.threads as u64,
            forgets_its_part: options.partition == Partition::SeedBug,
            scaled: options.pattern == Pattern::SeedOverflowScaled,
        }
    }
}

impl Iterator for BlockSequence {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        match self {
            Self::Blocks { blocks, order, position } => {
                if *position == blocks.count() {
                    return None;
                }
                let span = blocks.span(order.at(*position));
                *position += 1;
                Some(span)
            }
            Self::Overflowing(order) => order.next(),
        }
    }
}
