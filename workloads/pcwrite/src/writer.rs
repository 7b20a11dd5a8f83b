//! The measured loop: pages written in an order, settled now and then.

use crate::arguments::{Method, Pattern, Plan, Sync};
use crate::content::Content;
use contract::mix::mix;
use contract::page::page_bytes;
use contract::permutation::Permutation;
use contract::usage::Usage;
use contract::Failure;
use memmap2::MmapMut;
use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Pages between two looks at the clock.
const LOOK_PAGES: u64 = 16;

/// The file as it is written to.
#[derive(Debug)]
pub enum Target<'a> {
    /// A shared mapping of it.
    Mapped(MmapMut),
    /// The file itself.
    Called(&'a File),
}

/// What one pass did and cost.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Storing or calling, without the settling.
    pub write: Duration,
    /// The settling.
    pub sync: Duration,
    /// Pages that were written, from the first in the order.
    pub pages: u64,
    /// Faults and switches of the thread meanwhile.
    pub usage: Usage,
    /// The time was up before the last page.
    pub stopped: bool,
}

impl<'a> Target<'a> {
    /// Opens the file for the method.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where it cannot be mapped.
    pub fn new(method: Method, file: &'a File) -> Result<Self, Failure> {
        if method == Method::Pwrite {
            return Ok(Self::Called(file));
        }
        // SAFETY: the file has no name and nobody else has it open, so it is neither changed nor cut short.
        let mapped = unsafe { MmapMut::map_mut(file) };
        mapped.map(Self::Mapped).map_err(|cause| Failure::CannotHere(format!("cannot map the file: {cause}")))
    }

    #[inline(never)]
    fn write(&mut self, offset_bytes: u64, page: &[u8]) -> Result<(), Error> {
        match self {
            Self::Mapped(mapped) => {
                let start = usize::try_from(offset_bytes).map_err(Error::other)?;
                black_box(&mut mapped[start..start + page.len()]).copy_from_slice(page);
                Ok(())
            }
            Self::Called(file) => file.write_all_at(page, offset_bytes),
        }
    }

    /// Settles the whole file.
    fn settle(&self, sync: Sync) -> Result<(), Error> {
        match (self, sync) {
            (_, Sync::None) => Ok(()),
            (Self::Mapped(mapped), Sync::Async) => mapped.flush_async(),
            (Self::Mapped(mapped), Sync::Sync) => mapped.flush(),
            (Self::Called(file), Sync::Async) => begin_writing(file),
            (Self::Called(file), Sync::Sync) => file.sync_data(),
        }
    }
}

fn begin_writing(file: &File) -> Result<(), Error> {
    // SAFETY: sync_file_range(2) has no preconditions.
    let code = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if code == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// Which page comes at which place of a pass.
#[derive(Debug)]
pub struct Order(Option<Permutation>);

impl Order {
    /// The order of a pass; each random one is drawn anew.
    #[must_use]
    pub fn new(plan: &Plan, pass: u64) -> Self {
        let random = plan.pattern == Pattern::Random;
        Self(random.then(|| Permutation::new(pages(plan), mix(plan.seed ^ mix(pass)))))
    }

    /// The page at this place.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        self.0.as_ref().map_or(place, |permutation| permutation.at(place))
    }
}

/// How many pages the file has.
#[must_use]
pub fn pages(plan: &Plan) -> u64 {
    plan.size_bytes / page_bytes() as u64
}

/// Writes all pages once, or until the deadline.
///
/// # Errors
/// When the disk fails.
pub fn pass(
    plan: &Plan,
    target: &mut Target<'_>,
    content: &mut Content,
    number: u64,
    deadline: Option<Instant>,
) -> Result<Pass, Failure> {
    let order = Order::new(plan, number);
    let usage = Usage::of_this_thread();
    let begun = Instant::now();
    let mut done = Pass { write: Duration::ZERO, sync: Duration::ZERO, pages: 0, usage, stopped: false };
    while done.pages < pages(plan) && !done.stopped {
        let page = order.at(done.pages);
        target.write(page * page_bytes() as u64, content.of(page, number)).map_err(failed)?;
        done.pages += 1;
        if plan.every_pages.is_some_and(|every| done.pages % every == 0 && done.pages < pages(plan)) {
            done.sync += settled(plan, target)?;
        }
        done.stopped = done.pages % LOOK_PAGES == 0 && deadline.is_some_and(|at| Instant::now() >= at);
    }
    let synced_meanwhile = done.sync;
    done.write = begun.elapsed().saturating_sub(synced_meanwhile);
    done.usage = Usage::of_this_thread() - usage;
    done.sync += settled(plan, target)?;
    done.stopped &= done.pages < pages(plan);
    Ok(done)
}

fn settled(plan: &Plan, target: &Target<'_>) -> Result<Duration, Failure> {
    let start = Instant::now();
    target.settle(plan.sync).map_err(failed)?;
    Ok(start.elapsed())
}

fn failed(cause: Error) -> Failure {
    Failure::of("cannot write the file", cause)
}
