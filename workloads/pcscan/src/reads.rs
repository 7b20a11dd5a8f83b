//! Reads into buffers: by system calls that wait, by tokio's files, or through `io_uring`.

use crate::buffer::Buffer;
use crate::dataset::Source;
use crate::ring::{self, Answer, Ring};
use crate::scan::{ScanResult, Work};
use contract::failure::OrFailure;
use contract::Failure;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Read the file with pread(2), waiting for each piece. Fails if a read fails or the file ends
/// early.
pub fn waiting(source: &Source, work: &Work) -> Result<ScanResult, Failure> {
    let mut result = ScanResult::default();
    let mut buffer = vec![0; work.piece_bytes];
    while result.bytes < source.len as u64 && !out_of_time(work, &mut result) {
        let read = source.file.read_at(&mut buffer, result.bytes).or_failed(action(source))?;
        require_some(read, source)?;
        result += work.piece(&buffer[..read]);
    }
    Ok(result)
}

/// Read the file through tokio: each piece in its pool of threads for blocking work. Fails if a
/// read fails or the file ends early.
pub async fn through_tokio(source: &Source, work: &Work) -> Result<ScanResult, Failure> {
    let again = source.file.try_clone().or_failed(action(source))?;
    let mut file = tokio::fs::File::from_std(again);
    file.rewind().await.or_failed(action(source))?;
    let mut result = ScanResult::default();
    let mut buffer = vec![0; work.piece_bytes];
    while result.bytes < source.len as u64 && !out_of_time(work, &mut result) {
        let read = file.read(&mut buffer).await.or_failed(action(source))?;
        require_some(read, source)?;
        result += work.piece(&buffer[..read]);
    }
    Ok(result)
}

/// A read in flight: its buffer, and its offset in the file.
struct PendingRead {
    buffer: Buffer,
    offset: u64,
    answer: Answer,
}

/// Keep as many reads in flight as there are buffers, and look at their pieces in order. Fails if a
/// read fails or the file ends early.
pub async fn through_ring(
    source: &Source,
    work: &Work,
    ring: &Ring,
) -> Result<ScanResult, Failure> {
    let mut free =
        std::mem::take(&mut *source.buffers.lock().unwrap_or_else(PoisonError::into_inner));
    let mut in_flight = VecDeque::new();
    let mut result = ScanResult::default();
    let mut next = 0;
    loop {
        while next < source.len as u64 && !result.stopped {
            let Some(mut buffer) = free.pop() else { break };
            let answer = ring.read(&source.file, &mut buffer, next)?;
            in_flight.push_back(PendingRead { buffer, offset: next, answer });
            next += work.piece_bytes as u64;
        }
        let Some(read) = in_flight.pop_front() else { break };
        let (buffer, len) = arrived(source, ring, read).await?;
        if !out_of_time(work, &mut result) {
            result += work.piece(&buffer[..len]);
        }
        free.push(buffer);
    }
    *source.buffers.lock().unwrap_or_else(PoisonError::into_inner) = free;
    Ok(result)
}

/// Wait for a piece. The kernel may read less than requested; the whole piece is then requested
/// again.
async fn arrived(
    source: &Source,
    ring: &Ring,
    read: PendingRead,
) -> Result<(Buffer, usize), Failure> {
    let PendingRead { mut buffer, offset, mut answer } = read;
    let left = source.len as u64 - offset;
    let expected = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    for _ in 0..16 {
        let len = ring::result(answer).await.or_failed(action(source))?;
        if len >= expected {
            return Ok((buffer, expected));
        }
        require_some(len, source)?;
        answer = ring.read(&source.file, &mut buffer, offset)?;
    }
    Err(Failure::Failed(format!(
        "{} is read in parts only, again and again",
        source.path.display()
    )))
}

fn out_of_time(work: &Work, result: &mut ScanResult) -> bool {
    result.stopped |= work.is_out_of_time();
    result.stopped
}

fn require_some(read: usize, source: &Source) -> Result<(), Failure> {
    (read > 0).then_some(()).ok_or_else(|| {
        Failure::Failed(format!("{} ended before its {} bytes", source.path.display(), source.len))
    })
}

fn action(source: &Source) -> String {
    format!("cannot read {}", source.path.display())
}
