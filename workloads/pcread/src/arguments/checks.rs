//! Arguments that make no sense together.

use super::{Expected, Plan};
use crate::advice::{Advice, FileAdvice};
use crate::fetch::pread::DIRECT_BYTES;
use crate::source::Kind;
use contract::Failure;
use std::time::Duration;

/// The first thing that makes no sense.
///
/// # Errors
/// [`Failure::BadArguments`] saying what, and what would.
pub fn check(plan: &Plan) -> Result<(), Failure> {
    let wrong = [
        (plan.source != Kind::Mmap && plan.advice != Advice::Normal)
            .then_some("--advice is about the mapped file: it needs --source mmap"),
        (matches!(plan.source, Kind::Heap | Kind::HeapThp) && plan.fadvise != FileAdvice::Normal)
            .then_some("--fadvise is about the file: it means nothing for the heap"),
        (plan.source.is_memory() && plan.direct)
            .then_some("--direct is about reading: it needs --source pread or uring"),
        unaligned(plan),
        (!plan.sum.sums_bytes() && plan.expected != Expected::Nothing)
            .then_some("--sum touch adds nothing up, so nothing can be expected of it: use --sum simd"),
        (plan.max_duration == Some(Duration::ZERO)).then_some("--max-seconds must be above zero"),
    ];
    let first = wrong.into_iter().flatten().next();
    first.map_or(Ok(()), |why| Err(Failure::BadArguments(why.to_owned())))
}

/// Direct reads begin at whole units of the disk, and a block of the cache lies in one page of it.
fn unaligned(plan: &Plan) -> Option<&'static str> {
    let whole = plan.block_bytes % DIRECT_BYTES == 0;
    if !plan.opens_direct() || (whole && plan.pattern.visits_all()) {
        return None;
    }
    if plan.source == Kind::DirectCache && DIRECT_BYTES % plan.block_bytes == 0 && plan.pattern.visits_all() {
        return None;
    }
    Some("direct reads want whole blocks: --block-bytes a multiple of 4096 (of a cache, a divisor too), and no --pattern seed-overflow")
}
