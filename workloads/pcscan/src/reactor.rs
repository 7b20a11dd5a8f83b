//! Descriptors that the executor's reactor watches.

use contract::failure::OrFailure;
use contract::Failure;
use std::io::Error;
use std::os::fd::BorrowedFd;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::Interest;

/// Let the reactor of the running executor watch until a descriptor becomes readable. Fails if it
/// cannot be watched.
pub fn watch(descriptor: BorrowedFd<'_>) -> Result<AsyncFd<BorrowedFd<'_>>, Failure> {
    // SAFETY: a borrowed descriptor stays the same and open for as long as it is borrowed.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(Error::from).or_failed("the executor cannot watch a descriptor")
}

/// Wait until the descriptor is readable. Fails if the reactor has ended.
pub async fn readable<'a, 'b>(
    watched: &'a AsyncFd<BorrowedFd<'b>>,
) -> Result<AsyncFdReadyGuard<'a, BorrowedFd<'b>>, Failure> {
    watched.readable().await.or_failed("the executor watches no longer")
}
