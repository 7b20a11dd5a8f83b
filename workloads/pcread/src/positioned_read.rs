//! Reads at an offset that are repeated until they are complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Unit of direct reads: no common disk needs a larger one. Reads may extend past the end of the
/// file.
pub const DIRECT_BYTES: usize = 4096;

/// Fill the buffer from the offset on, at least `wanted` bytes of it. Fails if a read fails, or the
/// file ends before.
pub fn read_all(file: &File, buffer: &mut [u8], offset: u64, wanted: usize) -> io::Result<()> {
    let mut done = 0;
    while done < wanted {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
