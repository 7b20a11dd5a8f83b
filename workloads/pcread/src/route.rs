//! Where a thread goes in one pass: the spans of the working set that it reads, one after the other.

use crate::arguments::Plan;
use crate::blocks::{split, Blocks};
use crate::order::{Order, Pattern};
use crate::product::{Product, Share};
use std::ops::Range;

/// Which part of the working set each thread reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// A part of its own.
    Disjoint,
    /// The first part, each of them: the article's code for several threads, as printed.
    SeedBug,
}

/// The working set and how it is shared out.
#[derive(Debug)]
pub struct Map {
    size_bytes: usize,
    parts: Vec<Blocks>,
}

/// The spans of one thread in one pass.
#[derive(Debug)]
pub enum Route {
    /// Blocks of the thread's part, in an order that meets each once.
    Blocks {
        /// The part.
        blocks: Blocks,
        /// The order.
        order: Order,
        /// How many have been visited.
        position: u64,
    },
    /// The article's.
    Product(Product),
}

impl Map {
    /// Shares a working set of `size_bytes` out among the plan's threads.
    #[must_use]
    pub fn new(plan: &Plan, size_bytes: usize, page_bytes: usize) -> Self {
        let mut parts = split(size_bytes, plan.block_bytes, page_bytes, plan.threads);
        if plan.partition == Partition::SeedBug {
            parts = vec![parts[0].clone(); plan.threads];
        }
        Self { size_bytes, parts }
    }

    /// Where a thread goes in a pass.
    #[must_use]
    pub fn route(&self, plan: &Plan, thread: usize, pass: u64) -> Route {
        if !plan.pattern.visits_all() {
            return Route::Product(Product::new(self.share(plan, thread)));
        }
        let blocks = self.parts[thread].clone();
        let order = Order::new(plan.pattern, blocks.count(), plan.seed, thread as u64, pass);
        Route::Blocks { blocks, order, position: 0 }
    }

    /// Length of the working set.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn share(&self, plan: &Plan, thread: usize) -> Share {
        Share {
            size_bytes: self.size_bytes as u64,
            block_bytes: plan.block_bytes as u64,
            thread: thread as u64,
            threads: plan.threads as u64,
            forgets_its_part: plan.partition == Partition::SeedBug,
            scaled: plan.pattern == Pattern::SeedOverflowScaled,
        }
    }
}

impl Iterator for Route {
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
            Self::Product(product) => product.next(),
        }
    }
}
