//! Proof that a plan visits every byte exactly once, without reading any.

use crate::arguments::Plan;
use crate::blocks::{split, Blocks};
use crate::measurement::page_bytes;
use crate::order::Order;
use crate::source;
use contract::{line, Failure};
use serde_json::json;

/// Walks through the first pass of the plan with a bitmap in hand and prints what it found.
///
/// # Errors
/// When a block would be visited twice or never, or the file is not there.
pub fn self_test(plan: &Plan) -> Result<(), Failure> {
    let size_bytes = source::size_of(&plan.file, plan.size_bytes)?;
    let parts = split(size_bytes, plan.block_bytes, page_bytes(), plan.threads);
    let found: Vec<Visits> =
        parts.iter().enumerate().map(|(thread, blocks)| visits(plan, blocks, thread)).collect();
    let blocks: u64 = parts.iter().map(Blocks::count).sum();
    let distinct: u64 = found.iter().map(|visits| visits.distinct).sum();
    let bytes: usize = found.iter().map(|visits| visits.bytes).sum();
    let ok = distinct == blocks && bytes == size_bytes;
    line::print(
        &json!({"type": "self_test", "blocks": blocks, "visited_once": distinct, "bytes": bytes, "ok": ok}),
    )?;
    ok.then_some(())
        .ok_or_else(|| Failure::Failed(format!("only {distinct} of {blocks} blocks would be visited")))
}

struct Visits {
    distinct: u64,
    bytes: usize,
}

fn visits(plan: &Plan, blocks: &Blocks, thread: usize) -> Visits {
    let order = Order::new(plan.pattern, blocks.count(), plan.seed, thread as u64, 0);
    let mut seen = Bitmap::new(blocks.count());
    let new = (0..blocks.count()).map(|position| order.at(position)).filter(|index| seen.insert(*index));
    let spans = new.map(|index| blocks.span(index).len());
    spans.fold(Visits { distinct: 0, bytes: 0 }, |sum, len| Visits {
        distinct: sum.distinct + 1,
        bytes: sum.bytes + len,
    })
}

/// One bit a block: a terabyte in 4 KiB blocks still takes only 32 MiB.
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(count: u64) -> Self {
        Self(vec![0; usize::try_from(count.div_ceil(64)).unwrap_or_default()])
    }

    /// Sets the bit; false where it was set before.
    #[allow(clippy::cast_possible_truncation)] // an index below a count that fitted
    fn insert(&mut self, index: u64) -> bool {
        let (word, bit) = (&mut self.0[(index / 64) as usize], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_tells_a_second_visit() {
        let mut bitmap = Bitmap::new(130);
        assert!(bitmap.insert(129) && bitmap.insert(65));
        assert!(!bitmap.insert(129));
    }
}
