//! A mapped file that shrinks, or a disk that fails, kills the reader with SIGBUS. It then says why and exits 1.

use std::sync::OnceLock;

static SENTENCE: OnceLock<String> = OnceLock::new();

/// Installs the handler for the whole process, sigaction(2). The sentence begins with the name of the program.
pub fn explain(program: &str) {
    SENTENCE.get_or_init(|| {
        format!(
            "{program}: a mapped page could not be had: the file was truncated meanwhile, or its disk failed\n"
        )
    });
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
    // Set before the handler was, so that this is only a load.
    let sentence = SENTENCE.get().map_or("", String::as_str);
    // SAFETY: both calls are async-signal-safe, and the sentence stays where it is for the whole process.
    unsafe {
        libc::write(libc::STDERR_FILENO, sentence.as_ptr().cast(), sentence.len());
        libc::_exit(1);
    }
}
