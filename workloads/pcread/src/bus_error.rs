//! A mapped file that shrinks, or a disk that fails, kills the reader with SIGBUS. It then says why and exits 1.

const SENTENCE: &[u8] =
    b"pcread: a mapped page could not be read: the file was truncated meanwhile, or its disk failed\n";

/// Installs the handler for the whole process, sigaction(2).
pub fn explain() {
    let handler: extern "C" fn(libc::c_int) = say_and_exit;
    // SAFETY: the handler calls only what signal-safety(7) allows; every field not set here may be zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn say_and_exit(_signal: libc::c_int) {
    // SAFETY: both calls are async-signal-safe, and the sentence is static.
    unsafe {
        libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len());
        libc::_exit(1);
    }
}
