//! A handler for SIGBUS, which kills the reader of a mapped file that shrinks or whose disk fails.
//!
//! The process prints one sentence and exits with 1.

use std::sync::OnceLock;

static SENTENCE: OnceLock<String> = OnceLock::new();

/// Install the handler for the whole process, sigaction(2). The sentence begins with the name of
/// the program.
pub fn explain(program: &str) {
    SENTENCE.get_or_init(|| {
        format!(
            "{program}: a mapped page could not be had: the file was truncated meanwhile, or its disk failed\n"
        )
    });
    let handler: extern "C" fn(libc::c_int) = report_and_exit;
    // SAFETY: the handler calls only functions that signal-safety(7) allows; every field not set
    // here may be zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn report_and_exit(_signal: libc::c_int) {
    // Set before the handler was installed, so that this is only a load.
    let sentence = SENTENCE.get().map_or("", String::as_str);
    // SAFETY: both calls are async-signal-safe, and the sentence stays where it is for the whole
    // process.
    unsafe {
        libc::write(libc::STDERR_FILENO, sentence.as_ptr().cast(), sentence.len());
        libc::_exit(1);
    }
}
