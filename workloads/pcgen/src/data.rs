//! Writing a file from front to back while adding up its bytes.

use crate::content::Content;
use contract::failure::OrFailure;
use contract::sidecar::{BLOCK_BYTES, STRIDE_BYTES};
use contract::{bytesum, Failure};
use std::io::Write;

/// Running sums over a dataset, block by block.
#[derive(Debug, Default)]
pub struct Sums {
    /// CRC-32C of everything so far.
    pub crc32c: u32,
    /// Sum of every 512th byte so far.
    pub stride512_sum: u64,
    /// Sum of the bytes of each block.
    pub block_byte_sums: Vec<u64>,
}

impl Sums {
    /// Add one block, whose length is a multiple of the stride unless it is the last.
    pub fn add(&mut self, block: &[u8]) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, block);
        self.stride512_sum +=
            block.iter().step_by(STRIDE_BYTES).map(|byte| u64::from(*byte)).sum::<u64>();
        self.block_byte_sums.push(bytesum::fastest()(block));
    }

    /// Return the sum of all bytes so far.
    pub fn byte_sum(&self) -> u64 {
        self.block_byte_sums.iter().sum()
    }
}

/// Write `size_bytes` of the content, in blocks of the sidecar's size. Fails if a write fails; the
/// sentence names the offset.
pub fn write(out: &mut impl Write, content: &Content, size_bytes: u64) -> Result<Sums, Failure> {
    let mut sums = Sums::default();
    let mut buffer = vec![0; block_len(size_bytes)];
    for offset_bytes in (0..size_bytes).step_by(buffer.len().max(1)) {
        let block = &mut buffer[..block_len(size_bytes - offset_bytes)];
        content.write_to(block, offset_bytes);
        out.write_all(block).or_failed(format!("cannot write at byte {offset_bytes}"))?;
        sums.add(block);
    }
    Ok(sums)
}

/// Return the length of the next block, given the number of bytes left.
#[allow(clippy::cast_possible_truncation)] // at most a block
pub fn block_len(left_bytes: u64) -> usize {
    left_bytes.min(BLOCK_BYTES) as usize
}
