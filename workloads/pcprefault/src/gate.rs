//! Where threads wait until they are let go, or sent home.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;

/// A gate for a known number of threads and the one that opens it.
#[derive(Debug)]
pub struct Gate {
    line: Barrier,
    opened: AtomicBool,
    wanted: AtomicBool,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            line: Barrier::new(threads + 1),
            opened: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
        }
    }

    /// Waits at the gate; false when there is nothing to do. A thread calls it once.
    pub fn wait(&self) -> bool {
        self.line.wait();
        self.line.wait();
        self.wanted.load(Ordering::SeqCst)
    }

    /// Returns when all threads stand at the gate.
    pub fn until_all_are_here(&self) {
        self.line.wait();
    }

    /// Lets all go to work.
    pub fn open(&self) {
        self.let_go(true);
    }

    /// Sends all home, unless they were let go before.
    pub fn dismiss(&self) {
        self.let_go(false);
    }

    fn let_go(&self, to_work: bool) {
        if !self.opened.swap(true, Ordering::SeqCst) {
            self.wanted.store(to_work, Ordering::SeqCst);
            self.line.wait();
        }
    }
}
