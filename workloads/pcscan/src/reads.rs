//! Reading into buffers: by system calls that wait, by tokio's files, or through `io_uring`.

use crate::buffer::{Buffer, ALIGN_BYTES};
use crate::dataset::Source;
use crate::ring::{self, Answer, Ring};
use crate::scan::{Seen, Work};
use contract::Failure;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::PoisonError;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Reads the file with pread(2), waiting for each piece.
///
/// # Errors
/// When a read fails or the file ends early.
pub fn waiting(source: &Source, work: &Work) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let mut buffer = vec![0; work.piece_bytes];
    while seen.bytes < source.len as u64 && !out_of_time(work, &mut seen) {
        let read =
            source.file.read_at(&mut buffer, seen.bytes).map_err(|cause| failed(&source.path, cause))?;
        require_some(read, source)?;
        seen += work.piece(&buffer[..read]);
    }
    Ok(seen)
}

/// Reads the file as tokio does it: each piece in its pool of threads for blocking work.
///
/// # Errors
/// When a read fails or the file ends early.
pub async fn through_tokio(source: &Source, work: &Work) -> Result<Seen, Failure> {
    let again = source.file.try_clone().map_err(|cause| failed(&source.path, cause))?;
    let mut file = tokio::fs::File::from_std(again);
    file.rewind().await.map_err(|cause| failed(&source.path, cause))?;
    let mut seen = Seen::default();
    let mut buffer = vec![0; work.piece_bytes];
    while seen.bytes < source.len as u64 && !out_of_time(work, &mut seen) {
        let read = file.read(&mut buffer).await.map_err(|cause| failed(&source.path, cause))?;
        require_some(read, source)?;
        seen += work.piece(&buffer[..read]);
    }
    Ok(seen)
}

/// A read on its way: where it goes, and from which byte on.
struct Coming {
    buffer: Buffer,
    offset: u64,
    answer: Answer,
}

/// Keeps as many reads under way as there are buffers, and looks at them in order.
///
/// # Errors
/// When a read fails or the file ends early.
pub async fn through_ring(source: &Source, work: &Work, ring: &Ring) -> Result<Seen, Failure> {
    let mut free = std::mem::take(&mut *source.buffers.lock().unwrap_or_else(PoisonError::into_inner));
    let mut coming = VecDeque::new();
    let mut seen = Seen::default();
    let mut next = 0;
    loop {
        while next < source.len as u64 && !seen.stopped {
            let Some(mut buffer) = free.pop() else { break };
            let answer = ring.read(&source.file, &mut buffer, next)?;
            coming.push_back(Coming { buffer, offset: next, answer });
            next += work.piece_bytes as u64;
        }
        let Some(read) = coming.pop_front() else { break };
        let (buffer, len) = arrived(source, ring, read).await?;
        if !out_of_time(work, &mut seen) {
            seen += work.piece(&buffer[..len]);
        }
        free.push(buffer);
    }
    *source.buffers.lock().unwrap_or_else(PoisonError::into_inner) = free;
    Ok(seen)
}

/// The piece that arrives. The kernel may give less than was asked for; then the piece is asked for again, whole.
async fn arrived(source: &Source, ring: &Ring, read: Coming) -> Result<(Buffer, usize), Failure> {
    let Coming { mut buffer, offset, mut answer } = read;
    let left = source.len as u64 - offset;
    let expected = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    for _ in 0..16 {
        let len = ring::result(answer).await.map_err(|cause| failed(&source.path, cause))?;
        if len >= expected {
            return Ok((buffer, expected));
        }
        require_some(len, source)?;
        answer = ring.read(&source.file, &mut buffer, offset)?;
    }
    Err(Failure::Failed(format!("{} is read in parts only, again and again", source.path.display())))
}

/// Whether a piece can be read directly, without the page cache.
#[must_use]
pub fn is_aligned(piece_bytes: usize) -> bool {
    piece_bytes % ALIGN_BYTES == 0
}

fn out_of_time(work: &Work, seen: &mut Seen) -> bool {
    seen.stopped |= work.is_out_of_time();
    seen.stopped
}

fn require_some(read: usize, source: &Source) -> Result<(), Failure> {
    (read > 0).then_some(()).ok_or_else(|| {
        Failure::Failed(format!("{} ended before its {} bytes", source.path.display(), source.len))
    })
}

fn failed(path: &Path, cause: std::io::Error) -> Failure {
    Failure::of(format!("cannot read {}", path.display()), cause)
}
