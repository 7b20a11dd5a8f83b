//! Proof of the written content: on the disk as it was left, and through the file after everything
//! was written back.

use crate::content::Content;
use crate::extents;
use crate::writer::{PageOrder, WritePlan};
use contract::failure::OrFailure;
use contract::page_cache::page_bytes;
use contract::{bytesum, page_cache, Failure};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// For each page the pass that wrote it last; None if no pass has written it.
#[derive(Debug)]
pub struct Written(Vec<Option<u64>>);

impl Written {
    /// Derive it from the number of pages that each pass wrote.
    #[allow(clippy::cast_possible_truncation)] // a page number below a count that fits in memory
    pub fn by(plan: &WritePlan, passes: &[u64]) -> Self {
        let mut last = vec![None; plan.pages as usize];
        for (number, written) in (0..).zip(passes) {
            let order = PageOrder::new(plan, number);
            (0..*written).for_each(|position| last[order.at(position) as usize] = Some(number));
        }
        Self(last)
    }

    /// Return how many different pages were written.
    pub fn count(&self) -> u64 {
        self.0.iter().flatten().count() as u64
    }

    /// Return the sum of their bytes.
    pub fn sum(&self, content: &Content) -> u64 {
        self.numbered().map(|(number, pass)| content.sum_of(number, pass)).sum()
    }

    /// Return how many pages are on the disk as they were written last; None if the disk cannot be
    /// read.
    pub fn on_disk(&self, file: &File, content: &mut Content) -> Option<u64> {
        let mut right = 0;
        extents::each_page(file, |number, bytes| {
            right += u64::from(self.is_right(number, bytes, content));
        })?;
        Some(right)
    }

    /// Write back and drop the file, then read every written page. Returns how many are right, and
    /// their sum. Fails if the disk fails.
    pub fn read_back(&self, file: &File, content: &mut Content) -> Result<(u64, u64), Failure> {
        let action = "cannot read the file back";
        page_cache::write_back_and_drop(file).or_failed(action)?;
        let mut page = vec![0; page_bytes()];
        let (mut right, mut sum) = (0, 0);
        for (number, _) in self.numbered() {
            file.read_exact_at(&mut page, number * page_bytes() as u64).or_failed(action)?;
            right += u64::from(self.is_right(number, &page, content));
            sum += bytesum::fastest()(&page);
        }
        Ok((right, sum))
    }

    fn is_right(&self, number: u64, bytes: &[u8], content: &mut Content) -> bool {
        let pass =
            usize::try_from(number).ok().and_then(|number| self.0.get(number).copied().flatten());
        pass.is_some_and(|pass| content.of(number, pass) == bytes)
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).zip(&self.0).filter_map(|(number, pass)| pass.map(|pass| (number, pass)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::cli::options_from;
    use proptest::prelude::*;

    fn plan(pages: u64) -> WritePlan {
        WritePlan::new(options_from("--pattern random").unwrap(), pages * page_bytes() as u64)
    }

    proptest! {
        #[test]
        fn the_last_pass_that_came_so_far_counts(count in 1_u64..200, first in 0_u64..200, second in 0_u64..200) {
            let (plan, passes) = (plan(count), [first.min(count), second.min(count)]);
            let written = Written::by(&plan, &passes);
            let by_second = written.numbered().filter(|(_, pass)| *pass == 1).count() as u64;
            prop_assert_eq!(by_second, passes[1]);
            prop_assert!(written.count() >= passes[0].max(passes[1]) && written.count() <= passes[0] + passes[1]);
        }
    }

    #[test]
    fn other_bytes_another_pass_or_an_unwritten_page_are_not_right() {
        let plan = plan(4);
        let mut content = Content::new(plan.options.seed);
        let written = Written::by(&plan, &[4, 1]);
        let number = PageOrder::new(&plan, 1).at(0);
        let (old, mut page) = (content.of(number, 0).to_vec(), content.of(number, 1).to_vec());
        assert!(written.is_right(number, &page, &mut content));
        assert!(!written.is_right(number, &old, &mut content));
        page[77] ^= 1;
        assert!(!written.is_right(number, &page, &mut content));
        assert!(!written.is_right(4, &old, &mut content));
    }
}
