//! Ctrl-C ends the measurement, not the process: what was measured so far is still told, and the file still goes.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are remembered. A second one ends the process, whatever it waits for.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = remember;
        // SAFETY: sigaction(2) gets a whole structure, and the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESETHAND; // and no SA_RESTART: whoever waits must look
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Whether somebody asked for the end.
#[must_use]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
