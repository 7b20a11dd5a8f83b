//! A workload: reads a file once, block by block, and reports the slowest block.
//!
//!     workload FILE [--no-handshake]

use pagecage_workload::{conclude, Failure, Handshake, Object, OrFailure};
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.len();
    words.retain(|word| word != "--no-handshake");
    let is_by_hand = words.len() < count;
    let handshake = if is_by_hand { Handshake::skipped() } else { Handshake::default() };
    conclude("workload", work(handshake, &words))
}

fn work(handshake: Handshake, words: &[String]) -> Result<(), Failure> {
    let path = match words {
        [path] => path,
        _ => return Err(Failure::BadArguments("usage: workload FILE [--no-handshake]".into())),
    };

    // The set-up is not measured: it ends with `ready`.
    let mut file = File::open(path).or_failed(format!("cannot open {path}"))?;
    let size_bytes = file.metadata().or_failed(format!("cannot examine {path}"))?.len();
    let mut block = vec![0; BLOCK_BYTES];
    if !handshake.wait_for_go()? {
        return Ok(()); // the run was cancelled
    }

    // The work is measured: from `go` to `end`.
    let begun = Instant::now();
    let (mut bytes, mut blocks, mut slowest) = (0, 0, Duration::ZERO);
    loop {
        let block_begun = Instant::now();
        let found = file.read(&mut block).or_failed(format!("cannot read {path}"))?;
        if found == 0 {
            break;
        }
        slowest = slowest.max(block_begun.elapsed());
        bytes += found as u64;
        blocks += 1;
    }
    let response = Object::new().with("slowest_block_us", slowest.as_secs_f64() * 1e6);
    handshake.end(
        Object::new()
            .with("seconds", begun.elapsed().as_secs_f64())
            .with("bytes", bytes)
            .with("blocks", blocks)
            .with("distinct_bytes", bytes)
            .with("covered_fraction", bytes as f64 / size_bytes as f64)
            .with("response", response),
    )
}
