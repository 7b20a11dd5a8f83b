//! The assignment of pages of the file to frames of a cache.
//!
//! Replacement is by the clock algorithm: a hand goes round the frames, and spares each frame once
//! that was used since the last round.

/// No frame, or no page.
const NONE: u32 = u32::MAX;

/// The table of a cache. The bytes are elsewhere.
#[derive(Debug)]
pub struct Frames {
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    hand: usize,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    page: u32,
    pins: u16,
    used: bool,
}

impl Frames {
    /// Bytes of this table per frame.
    pub const BYTES_A_FRAME: usize = size_of::<Frame>();
    /// Bytes of this table per page of the file.
    pub const BYTES_A_PAGE: usize = size_of::<u32>();

    /// Create an empty cache for a file, given the numbers of frames and pages.
    pub fn new(frames: usize, pages: usize) -> Self {
        let empty = Frame { page: NONE, pins: 0, used: false };
        Self { frame_of: vec![NONE; pages], frames: vec![empty; frames], hand: 0 }
    }

    /// Return the frame that holds the page, and pin it until it is released.
    pub fn find(&mut self, page: usize) -> Option<usize> {
        let frame = self.frame_of[page];
        if frame == NONE {
            return None;
        }
        let found = &mut self.frames[frame as usize];
        found.used = true;
        found.pins += 1;
        Some(frame as usize)
    }

    /// Take a frame from the least recently used page, and pin it for this page until it is
    /// released. None if every frame is pinned.
    #[allow(clippy::cast_possible_truncation)] // pages and frames are counted in 32 bits: 16 TiB of 4 KiB each
    pub fn replace(&mut self, page: usize) -> Option<usize> {
        let frame = self.victim()?;
        let old = self.frames[frame].page;
        if old != NONE {
            self.frame_of[old as usize] = NONE;
        }
        self.frames[frame] = Frame { page: page as u32, pins: 1, used: true };
        self.frame_of[page] = frame as u32;
        Some(frame)
    }

    /// Unpin the frame.
    pub fn release(&mut self, frame: usize) {
        self.frames[frame].pins -= 1;
    }

    fn victim(&mut self) -> Option<usize> {
        // Two rounds: the first one may only clear marks.
        for _ in 0..2 * self.frames.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[at];
            if frame.pins == 0 && !std::mem::replace(&mut frame.used, false) {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Look a page up as a reader does; true if it was there.
    fn touch(frames: &mut Frames, page: usize) -> bool {
        let found = frames.find(page);
        let frame = found.or_else(|| frames.replace(page)).unwrap();
        frames.release(frame);
        found.is_some()
    }

    proptest! {
        #[test]
        fn a_page_is_in_one_frame_and_a_frame_holds_one_page(
            count in 1_usize..20, pages in prop::collection::vec(0_usize..50, 1..300),
        ) {
            let mut frames = Frames::new(count, 50);
            for page in pages {
                touch(&mut frames, page);
                let held: Vec<u32> = frames.frames.iter().map(|frame| frame.page).filter(|p| *p != NONE).collect();
                prop_assert_eq!(held.iter().collect::<HashSet<_>>().len(), held.len());
                for page in held {
                    prop_assert_eq!(frames.frames[frames.frame_of[page as usize] as usize].page, page);
                }
                prop_assert!(touch(&mut frames, page), "the page just read must be there");
            }
        }

        #[test]
        fn what_fits_is_read_once(pages in prop::collection::vec(0_usize..20, 1..300)) {
            let mut frames = Frames::new(20, 20);
            let missed = pages.iter().filter(|page| !touch(&mut frames, **page)).count();
            prop_assert_eq!(missed, pages.iter().collect::<HashSet<_>>().len());
        }
    }

    #[test]
    fn a_page_in_use_survives_a_page_used_once() {
        let mut frames = Frames::new(3, 100);
        touch(&mut frames, 0);
        for page in 1..50 {
            touch(&mut frames, page);
            touch(&mut frames, 0);
        }
        assert!(touch(&mut frames, 0));
    }

    #[test]
    fn kept_frames_are_not_given_away() {
        let mut frames = Frames::new(2, 10);
        let (one, _) = (frames.replace(1).unwrap(), frames.replace(2).unwrap());
        assert_eq!(frames.replace(3), None);
        frames.release(one);
        assert_eq!(frames.replace(3), Some(one));
    }
}
