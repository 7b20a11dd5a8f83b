//! The start-up set: one question for every bucket of the index, together with its answer.
//!
//! The key alone determines its bucket, so all questions are computed before anything is read.

use contract::index::{self, Key};
use contract::mixing_hash::{mix, GOLDEN_GAMMA};
use contract::Failure;

/// One in this many questions asks for an absent key, as a check for uniqueness does.
const ABSENT_IN: u64 = 4;

/// No key found yet.
const NONE: u32 = u32::MAX;

/// The properties of a file that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Seed of its keys.
    pub seed: u64,
    /// Number of its buckets.
    pub buckets: u64,
}

/// A key to look up, and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Number of the file.
    pub segment: usize,
    /// The key; the search for it begins at the bucket in question.
    pub key: Key,
    /// Whether it is in the file.
    pub is_present: bool,
}

/// One question for every bucket of all files.
#[derive(Debug)]
pub struct Questions {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    shape: Shape,
    first: u64,
    numbers: Vec<u32>,
}

impl Questions {
    /// Compute the start-up set of these files. Fails if a file has too many keys to number, or no
    /// key belongs to a bucket.
    pub fn new(shapes: &[Shape]) -> Result<Self, Failure> {
        let mut first = 0;
        let mut parts = Vec::with_capacity(shapes.len());
        for shape in shapes.iter().copied() {
            parts.push(Part { shape, first, numbers: numbers(shape)? });
            first += shape.buckets;
        }
        Ok(Self { parts })
    }

    /// Return the number of questions, which is the number of buckets.
    pub fn count(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.first + part.shape.buckets)
    }

    /// Return the question about a bucket, numbered over all files.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // an index below the length of a vector
    pub fn about(&self, bucket: u64) -> Question {
        let segment = self.parts.partition_point(|part| part.first <= bucket) - 1;
        let part = &self.parts[segment];
        let number = u64::from(part.numbers[(bucket - part.first) as usize]);
        let is_present = number < index::entries(part.shape.buckets);
        Question { segment, key: Key::of(part.shape.seed, number), is_present }
    }
}

/// Return, for each bucket, the number of the first key that belongs to it: among those in the
/// file, or among those that are absent.
fn numbers(shape: Shape) -> Result<Vec<u32>, Failure> {
    let entries = index::entries(shape.buckets);
    if entries >= u64::from(NONE) / 4 {
        return Err(Failure::CannotHere(format!(
            "a file of {} buckets has too many keys",
            shape.buckets
        )));
    }
    let buckets =
        usize::try_from(shape.buckets).map_err(|cause| Failure::CannotHere(cause.to_string()))?;
    let mut numbers = vec![NONE; buckets];
    for (range, is_absent) in [(0..entries, false), (entries..4 * entries, true)] {
        search(shape, range, is_absent, &mut numbers);
    }
    if numbers.contains(&NONE) {
        return Err(Failure::Failed("a bucket is the home of no key".to_owned()));
    }
    Ok(numbers)
}

#[allow(clippy::cast_possible_truncation)] // buckets of a vector, numbers below a checked bound
fn search(shape: Shape, range: std::ops::Range<u64>, is_absent: bool, numbers: &mut [u32]) {
    let mut missing = (0..shape.buckets)
        .filter(|bucket| asks_for_absent(shape.seed, *bucket) == is_absent)
        .count();
    for number in range {
        if missing == 0 {
            return;
        }
        let bucket = Key::of(shape.seed, number).home(shape.buckets).0;
        let place = &mut numbers[bucket as usize];
        if *place == NONE && asks_for_absent(shape.seed, bucket) == is_absent {
            *place = number as u32;
            missing -= 1;
        }
    }
}

fn asks_for_absent(seed: u64, bucket: u64) -> bool {
    mix(seed ^ (bucket + 1).wrapping_mul(GOLDEN_GAMMA)) % ABSENT_IN == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_bucket_is_asked_about_once(sizes in prop::collection::vec(1_u64..300, 1..6), seed in 0_u64..1 << 60) {
            let shapes: Vec<Shape> =
                (seed..).zip(&sizes).map(|(seed, buckets)| Shape { seed, buckets: *buckets }).collect();
            let questions = Questions::new(&shapes).unwrap();
            prop_assert_eq!(questions.count(), sizes.iter().sum::<u64>());
            let expected = sizes.iter().enumerate().flat_map(|(file, buckets)| (0..*buckets).map(move |own| (file, own)));
            for (bucket, (file, own)) in (0..).zip(expected) {
                let question = questions.about(bucket);
                prop_assert_eq!(question.segment, file);
                prop_assert_eq!(question.key.home(shapes[file].buckets).0, own);
            }
        }
    }

    #[test]
    fn about_one_in_four_is_absent() {
        let questions = Questions::new(&[Shape { seed: 1, buckets: 10_000 }]).unwrap();
        let absent = (0..10_000).filter(|bucket| !questions.about(*bucket).is_present).count();
        assert!((2300..2700).contains(&absent), "{absent}");
    }

    #[test]
    fn a_file_with_too_many_keys_is_refused_at_once() {
        let refused = Questions::new(&[Shape { seed: 1, buckets: 1 << 40 }]).unwrap_err();
        assert_eq!(refused.exit_code(), 77);
    }
}
