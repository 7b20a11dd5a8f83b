//! Interruption: Ctrl-C ends the measurement but not the process, which still reports the finished
//! phases.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn record(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Record SIGINT, SIGTERM and SIGHUP from now on. A second signal ends the process at once.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = record;
        // SAFETY: sigaction(2) gets a whole structure, and the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESETHAND; // and no SA_RESTART: a waiting call must return
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Return whether such a signal has arrived.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
