//! The number of the file's bytes that wait to be written back, watched by a thread.

use contract::page_cache::{cachestat, page_bytes};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(20);

/// Return the bytes of the file that are not on the disk yet; None before kernel 6.5.
pub fn unwritten_bytes(file: &File) -> Option<u64> {
    cachestat(file).ok().map(|found| found.unwritten_pages() * page_bytes() as u64)
}

/// Do the work. Returns its result, and the most bytes that were seen waiting meanwhile.
pub fn peak_while<T>(file: &File, work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = unwritten_bytes(file);
            while !done.load(Ordering::SeqCst) {
                thread::sleep(PAUSE);
                most = most.max(unwritten_bytes(file));
            }
            most
        });
        let result = work();
        let last = unwritten_bytes(file);
        done.store(true, Ordering::SeqCst);
        (result, watcher.join().ok().flatten().max(last))
    })
}
