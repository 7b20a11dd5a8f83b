//! One `io_uring` for all files, whose completions wake the executor's reactor through an eventfd.

use crate::buffer::Buffer;
use crate::reactor::{broken, watch};
use contract::Failure;
use io_uring::{opcode, squeue::Entry, types::Fd, IoUring, Probe};
use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Submissions that may wait to be handed over; far more than are ever prepared at once.
const ENTRIES: u32 = 256;

/// Where the result of one operation will arrive: bytes or zero, or an error number below zero.
pub type Answer = oneshot::Receiver<i32>;

/// The ring, and who waits for what.
#[derive(Debug)]
pub struct Ring {
    event: OwnedFd,
    state: Mutex<State>,
}

struct State {
    ring: IoUring,
    waiting: HashMap<u64, oneshot::Sender<i32>>,
    next: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} operations under way", self.waiting.len())
    }
}

impl Ring {
    /// A ring that can do one kind of operation, found by asking the kernel and not by its version.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where there is no `io_uring`, it is forbidden, or it lacks the operation.
    pub fn with(operation: u8, name: &str) -> Result<Self, Failure> {
        let refused = |cause: Error| Failure::CannotHere(format!("io_uring is refused here: {cause}"));
        let ring = IoUring::new(ENTRIES).map_err(refused)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(refused)?;
        if !probe.is_supported(operation) {
            return Err(Failure::CannotHere(format!("this kernel's io_uring has no {name}")));
        }
        let event = event_fd().map_err(refused)?;
        ring.submitter().register_eventfd(event.as_raw_fd()).map_err(refused)?;
        Ok(Self { event, state: Mutex::new(State { ring, waiting: HashMap::new(), next: 0 }) })
    }

    /// Begins to read into the first `len` bytes of the buffer, which must not be touched until the answer is there.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn read(&self, file: &impl AsRawFd, buffer: &mut Buffer, offset: u64) -> Result<Answer, Failure> {
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), buffer.start(), len).offset(offset).build();
        self.submit(entry)
    }

    /// Begins to give an advice about mapped memory, madvise(2), off the calling thread.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn madvise(&self, memory: &[u8], advice: libc::c_int) -> Result<Answer, Failure> {
        let len = i64::try_from(memory.len()).unwrap_or(i64::MAX);
        self.submit(opcode::Madvise::new(memory.as_ptr().cast(), len, advice).build())
    }

    /// Wakes those who wait, whenever something is done; ends only when it is aborted.
    ///
    /// # Errors
    /// When the executor cannot watch the eventfd.
    pub async fn wake(&self) -> Result<(), Failure> {
        let watched = watch(self.event.as_fd())?;
        loop {
            let mut ready = watched.readable().await.map_err(broken)?;
            drain(&self.event);
            ready.clear_ready();
            self.deliver();
        }
    }

    fn submit(&self, entry: Entry) -> Result<Answer, Failure> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let (tell, answer) = oneshot::channel();
        state.waiting.insert(number, tell);
        // SAFETY: buffers are never freed and mappings live as long as the scan; each is left alone by its owner until
        // the answer has come.
        let pushed = unsafe { state.ring.submission().push(&entry.user_data(number)) };
        pushed.map_err(|cause| Failure::of("the ring's submission queue is full", cause))?;
        hand_over(&state.ring)?;
        Ok(answer)
    }

    fn deliver(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        for done in state.ring.completion() {
            if let Some(tell) = state.waiting.remove(&done.user_data()) {
                let _ = tell.send(done.result()); // nobody waits any more: the scan has failed elsewhere
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number an operation ended with; below zero it is an error of that number.
///
/// # Errors
/// The error itself.
pub async fn result(answer: Answer) -> Result<usize, Error> {
    let code = answer.await.map_err(|_| Error::other("the ring was closed"))?;
    usize::try_from(code).map_err(|_| Error::from_raw_os_error(-code))
}

fn hand_over(ring: &IoUring) -> Result<(), Failure> {
    loop {
        match ring.submit() {
            Ok(_) => return Ok(()),
            Err(cause) if cause.kind() == ErrorKind::Interrupted => (),
            Err(cause) => return Err(Failure::of("io_uring takes no more work", cause)),
        }
    }
}

fn event_fd() -> Result<OwnedFd, Error> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn drain(event: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: eight bytes are what an eventfd gives, and the place for them outlives the call.
    unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), std::mem::size_of::<u64>()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_operation_that_fails_gives_its_error_number() {
        let Ok(ring) = Ring::with(opcode::Read::CODE, "read").map(Arc::new) else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = std::fs::File::open("/").unwrap();
        let found = runtime.block_on(async {
            let waker = ring.clone();
            let waking = tokio::spawn(async move { waker.wake().await });
            let mut buffer = Buffer::new(4096).unwrap();
            let found = result(ring.read(&folder, &mut buffer, 0).unwrap()).await;
            waking.abort();
            found
        });
        assert_eq!(found.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn an_operation_that_no_kernel_has_is_refused() {
        let failure = Ring::with(250, "dance").unwrap_err();
        assert!(matches!(failure, Failure::CannotHere(_)), "{failure}");
    }
}
