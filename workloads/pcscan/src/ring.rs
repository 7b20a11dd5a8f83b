//! One `io_uring` for all files. Its completions wake the executor's reactor through an eventfd.

use crate::buffer::Buffer;
use crate::reactor::{readable, watch};
use contract::failure::OrFailure;
use contract::Failure;
use io_uring::{opcode, squeue::Entry, types::Fd, IoUring, Probe};
use rustix::event::{eventfd, EventfdFlags};
use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Entries of the submission queue, far more than are ever prepared at once.
const ENTRIES: u32 = 256;

/// Receives the result of one operation: bytes or zero, or a negative error number.
pub type Answer = oneshot::Receiver<i32>;

/// The ring, and the operations in flight.
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
        write!(out, "{} operations in flight", self.waiting.len())
    }
}

impl Ring {
    /// Create a ring that supports one operation. The kernel is asked; its version is not compared.
    /// Fails with [`Failure::CannotHere`] without `io_uring`, or if it is forbidden or lacks the
    /// operation.
    pub fn with(operation: u8, name: &str) -> Result<Self, Failure> {
        let refused = "io_uring is refused here";
        let ring = IoUring::new(ENTRIES).or_cannot_here(refused)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).or_cannot_here(refused)?;
        if !probe.is_supported(operation) {
            return Err(Failure::CannotHere(format!("this kernel's io_uring has no {name}")));
        }
        let event =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).or_cannot_here(refused)?;
        ring.submitter().register_eventfd(event.as_raw_fd()).or_cannot_here(refused)?;
        Ok(Self { event, state: Mutex::new(State { ring, waiting: HashMap::new(), next: 0 }) })
    }

    /// Start to read into the buffer, which must not be touched until the answer arrives. Fails if
    /// the kernel rejects the operation.
    pub fn read(
        &self,
        file: &impl AsRawFd,
        buffer: &mut Buffer,
        offset: u64,
    ) -> Result<Answer, Failure> {
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let entry =
            opcode::Read::new(Fd(file.as_raw_fd()), buffer.start(), len).offset(offset).build();
        self.submit(entry)
    }

    /// Start to advise the kernel about mapped memory, madvise(2), without using the calling
    /// thread. Fails if the kernel rejects the operation.
    pub fn madvise(&self, memory: &[u8], advice: libc::c_int) -> Result<Answer, Failure> {
        let len = i64::try_from(memory.len()).unwrap_or(i64::MAX);
        self.submit(opcode::Madvise::new(memory.as_ptr().cast(), len, advice).build())
    }

    /// Deliver results as operations complete, until aborted. Fails if the executor cannot watch
    /// the eventfd.
    pub async fn wake(&self) -> Result<(), Failure> {
        let watched = watch(self.event.as_fd())?;
        loop {
            let mut ready = readable(&watched).await?;
            let _ = rustix::io::read(&self.event, &mut [0; 8]); // a count of completions, which is not needed
            ready.clear_ready();
            self.deliver();
        }
    }

    fn submit(&self, entry: Entry) -> Result<Answer, Failure> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(number, sender);
        // SAFETY: buffers are never freed, and mappings live as long as the scan. Their owners do
        // not touch them until the answer has arrived.
        unsafe { state.ring.submission().push(&entry.user_data(number)) }
            .or_failed("the ring's submission queue is full")?;
        submit_all(&state.ring)?;
        Ok(answer)
    }

    fn deliver(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        for done in state.ring.completion() {
            if let Some(sender) = state.waiting.remove(&done.user_data()) {
                let _ = sender.send(done.result()); // no receiver is left if the scan has failed elsewhere
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Return the result of an operation.
///
/// # Errors
/// The error that a negative result stands for.
pub async fn result(answer: Answer) -> Result<usize, Error> {
    let code = answer.await.map_err(|_| Error::other("the ring was closed"))?;
    usize::try_from(code).map_err(|_| Error::from_raw_os_error(-code))
}

fn submit_all(ring: &IoUring) -> Result<(), Failure> {
    loop {
        match ring.submit() {
            Ok(_) => return Ok(()),
            Err(cause) if cause.kind() == ErrorKind::Interrupted => (),
            Err(cause) => return Err(cause).or_failed("io_uring takes no more work"),
        }
    }
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
