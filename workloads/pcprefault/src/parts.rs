//! The division of a file into one contiguous part per thread.

use contract::page_cache::page_bytes;
use std::ops::Range;

/// Divide `length_bytes` into disjoint parts that begin at page boundaries and together are the
/// whole. Parts beyond the number of pages are empty.
pub fn parts(length_bytes: usize, count: usize) -> Vec<Range<usize>> {
    let pages = length_bytes.div_ceil(page_bytes());
    let bound = |part: usize| {
        let page = pages / count * part + (pages % count).min(part);
        (page * page_bytes()).min(length_bytes)
    };
    (0..count).map(|part| bound(part)..bound(part + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_disjoint_aligned_even_and_the_whole(length in 1_usize..9_000_000, count in 1_usize..40) {
            let mut next = 0;
            let cut = parts(length, count);
            for part in &cut {
                prop_assert_eq!(part.start, next);
                prop_assert!(next % page_bytes() == 0 || next == length);
                next = part.end;
            }
            prop_assert_eq!((next, cut.len()), (length, count));
            let lengths = cut.iter().map(ExactSizeIterator::len);
            prop_assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 2 * page_bytes());
        }
    }
}
