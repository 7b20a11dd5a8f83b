//! Descriptors that the executor's reactor watches for us.

use contract::Failure;
use std::io::Error;
use std::os::fd::BorrowedFd;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// Has the reactor of the running executor watch a descriptor that becomes readable.
///
/// # Errors
/// When it cannot be watched.
pub fn watch(descriptor: BorrowedFd<'_>) -> Result<AsyncFd<BorrowedFd<'_>>, Failure> {
    // SAFETY: a borrowed descriptor stays the same and open for as long as it is borrowed.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|refused| Failure::of("the executor cannot watch a descriptor", Error::from(refused)))
}

/// The sentence for a reactor that has broken off.
pub fn broken(cause: Error) -> Failure {
    Failure::of("the executor watches no longer", cause)
}
