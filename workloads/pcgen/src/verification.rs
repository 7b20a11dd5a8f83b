//! Reading a dataset back and comparing it with its sidecar.

use crate::data::{block_len, Sums};
use crate::part_file::require_no_holes;
use contract::failure::OrFailure;
use contract::sidecar::BLOCK_BYTES;
use contract::{Failure, Sidecar};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Read the whole file and return its sidecar if both agree.
///
/// # Errors
/// If either is missing, the file has holes, or a block differs; the sentence names the first such
/// block.
pub fn verify(data: &Path) -> Result<Sidecar, Failure> {
    let shown = data.display();
    let sidecar = Sidecar::load(&Sidecar::path_of(data))?;
    let mut file = File::open(data).or_failed(format!("cannot open {shown}"))?;
    let length = file.metadata().or_failed(format!("cannot examine {shown}"))?.len();
    if length != sidecar.size_bytes {
        let expected = sidecar.size_bytes;
        return Err(Failure::Failed(format!(
            "{shown} is {length} bytes long, its sidecar says {expected}"
        )));
    }
    require_no_holes(&file, data)?;
    let sums = read(&mut file, length).or_failed(format!("cannot read {shown}"))?;
    compare(&sums, &sidecar)
        .map_err(|what| Failure::Failed(format!("{shown} differs from its sidecar {what}")))?;
    Ok(sidecar)
}

fn read(file: &mut File, size_bytes: u64) -> std::io::Result<Sums> {
    let mut sums = Sums::default();
    let mut buffer = vec![0; block_len(size_bytes)];
    let mut left_bytes = size_bytes;
    while left_bytes > 0 {
        let block = &mut buffer[..block_len(left_bytes)];
        file.read_exact(block)?;
        sums.add(block);
        left_bytes -= block.len() as u64;
    }
    Ok(sums)
}

fn compare(sums: &Sums, sidecar: &Sidecar) -> Result<(), String> {
    let pairs = sums.block_byte_sums.iter().zip(&sidecar.block_byte_sums);
    if let Some(block) = pairs.into_iter().position(|(found, expected)| found != expected) {
        return Err(format!(
            "in the 1 MiB block that begins at byte {}",
            block as u64 * BLOCK_BYTES
        ));
    }
    if sums.stride512_sum != sidecar.stride512_sum {
        return Err("in the sum of every 512th byte, though every block's sum agrees".to_owned());
    }
    if sums.crc32c != sidecar.crc32c {
        return Err(
            "in the order of its bytes: every sum agrees and the CRC-32C does not".to_owned()
        );
    }
    Ok(())
}
