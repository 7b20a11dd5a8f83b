//! The phases of the measurement, their order, and their shares of the time.

use std::time::Duration;

/// The block of a random phase: the block of most databases, and one I/O for every provider.
pub const SMALL_BYTES: usize = 4 << 10;
/// The block of a sequential phase.
pub const LARGE_BYTES: usize = 1 << 20;
/// Large blocks in flight.
const SEQUENTIAL_DEPTH: usize = 8;
/// The depth of the long random phases. Deep enough for any limit to bind: 32 I/Os that take 1 ms
/// each are 32,000 a second.
const SUSTAINED_DEPTH: usize = 32;

/// One phase of the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    pub name: &'static str,
    /// Whether it writes.
    pub writes: bool,
    /// Whether its blocks come in random order.
    pub random: bool,
    /// Length of a block.
    pub block_bytes: usize,
    /// Blocks in flight.
    pub depth: usize,
    pub time: Duration,
}

/// The time that all phases share. Time beyond it goes to the two long phases of reading, which
/// detect bursts: a bucket that lasts half an hour must not run out during another phase.
const SHARED: Duration = Duration::from_secs(60);
/// The random reads' share of the time beyond.
const RANDOM_SHARE: f64 = 0.7;

/// Return all phases in order. The first one fills the file for the others.
pub fn phases(all: Duration) -> Vec<Phase> {
    let shared = all.min(SHARED);
    let beyond = all.saturating_sub(shared);
    let depths = depths(all);
    let step = shared.mul_f64(0.14 / depths.len() as f64);
    let sequential = |name, writes, time| phase(name, writes, false, SEQUENTIAL_DEPTH, time);
    let random = |name, writes, depth, time| phase(name, writes, true, depth, time);
    let (read, sustained) = (beyond.mul_f64(1.0 - RANDOM_SHARE), beyond.mul_f64(RANDOM_SHARE));
    let mut phases = vec![sequential("sequential_write", true, shared.mul_f64(0.12))];
    phases.push(sequential("sequential_read", false, shared.mul_f64(0.13) + read));
    phases.extend(depths.iter().map(|depth| random("random_read", false, *depth, step)));
    phases.push(random(
        "random_read_sustained",
        false,
        SUSTAINED_DEPTH,
        shared.mul_f64(0.30) + sustained,
    ));
    phases.extend(depths.iter().map(|depth| random("random_write", true, *depth, step)));
    phases.push(random("random_write_sustained", true, SUSTAINED_DEPTH, shared.mul_f64(0.12)));
    phases
}

fn phase(name: &'static str, writes: bool, random: bool, depth: usize, time: Duration) -> Phase {
    let block_bytes = if random { SMALL_BYTES } else { LARGE_BYTES };
    Phase { name, writes, random, block_bytes, depth, time }
}

/// Return as many depths as leave each of them more than a second.
fn depths(all: Duration) -> &'static [usize] {
    match all.as_secs() {
        ..30 => &[1, 32],
        30..50 => &[1, 4, 16, 64],
        _ => &[1, 2, 4, 8, 16, 32, 64],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_keep_to_the_time_and_the_longest_reads_at_random() {
        for seconds in [5, 29, 30, 60, 7200] {
            let all = Duration::from_secs(seconds);
            let phases = phases(all);
            let sum: Duration = phases.iter().map(|phase| phase.time).sum();
            assert!(sum <= all && sum > all.mul_f64(0.9), "{seconds}: {sum:?}");
            let longest = phases.iter().max_by_key(|phase| phase.time).unwrap();
            assert_eq!(longest.name, "random_read_sustained");
            assert!(
                phases[0].writes && !phases[0].random,
                "the file must be written before it is read"
            );
        }
    }

    #[test]
    fn what_is_beyond_a_minute_goes_to_the_phases_that_look_for_bursts() {
        let times = |seconds| {
            phases(Duration::from_secs(seconds)).into_iter().map(|phase| (phase.name, phase.time))
        };
        let longer = times(7260).zip(times(60)).filter(|(long, short)| long != short);
        let gained: Vec<(&str, u64)> = longer
            .map(|(long, short)| (long.0, long.1.saturating_sub(short.1).as_secs()))
            .collect();
        assert_eq!(gained, [("sequential_read", 2160), ("random_read_sustained", 5040)]);
    }

    #[test]
    fn a_minute_is_enough_for_every_depth() {
        let steps: Vec<Phase> = phases(Duration::from_secs(60))
            .into_iter()
            .filter(|p| p.name == "random_read")
            .collect();
        assert_eq!(steps.iter().map(|p| p.depth).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
        assert!(steps.iter().all(|p| p.time >= Duration::from_secs(1)));
    }
}
