//! Several processes that use the same file: their times and the memory that they take together.

use crate::child_process::ChildProcess;
use crate::method::MOST_THREADS;
use clap::builder::RangedU64ValueParser;
use contract::json_lines::{self, Checksum, End, Sample};
use contract::listed_sizes::ListedSizes;
use contract::median::median;
use contract::{Failure, Handshake};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::thread;
use std::time::{Duration, Instant};

/// In how many processes the file is used.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessOptions {
    /// Number of processes, each of which does all of this
    #[arg(long, value_name = "N")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    processes: Option<usize>,
    /// Pause before each process but the first begins, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    stagger_ms: u64,
    /// Begin each process when the previous one has ended
    #[arg(long, conflicts_with = "stagger_ms")]
    stagger_loaded: bool,
}

impl ProcessOptions {
    /// Return the number of processes; None to use the file in this one.
    pub fn count(&self) -> Option<usize> {
        self.processes
    }
}

/// Start the processes with these arguments, let one after the other begin, and print their common
/// lines. Returns whether all of them read the expected sum; None without an expectation, or if the
/// run was cancelled. Fails if one of them fails.
pub fn measure(
    options: &ProcessOptions,
    arguments: &[OsString],
    handshake: Handshake,
) -> Result<Option<bool>, Failure> {
    let start = |_| ChildProcess::start(arguments);
    let mut processes = (0..options.processes.unwrap_or(1))
        .map(start)
        .collect::<Result<Vec<ChildProcess>, Failure>>()?;
    if !handshake.wait_for_go()? {
        return Ok(None);
    }
    let started = Instant::now();
    let ends = options.run_in_turn(&mut processes)?;
    let run =
        SharedRun { seconds: started.elapsed().as_secs_f64(), memory: memory(&processes), ends };
    json_lines::print(&run.sample())?;
    json_lines::print(&run.end())?;
    handshake.wait_for_close()?;
    Ok(run.checksum_ok())
}

impl ProcessOptions {
    /// Return the closing lines in the order in which the processes began.
    fn run_in_turn(&self, processes: &mut [ChildProcess]) -> Result<Vec<Value>, Failure> {
        if self.stagger_loaded {
            return processes
                .iter_mut()
                .map(|process| process.go().and_then(|()| process.end()))
                .collect();
        }
        // What they print stays in their pipes until then: a few hundred bytes each.
        for (number, process) in processes.iter_mut().enumerate() {
            thread::sleep(Duration::from_millis(if number == 0 { 0 } else { self.stagger_ms }));
            process.go()?;
        }
        processes.iter_mut().map(ChildProcess::end).collect()
    }
}

/// Return the memory of all processes while all of them still have it: proportional and plain.
fn memory(processes: &[ChildProcess]) -> [Option<u64>; 2] {
    let rollups: Vec<_> =
        processes.iter().map(|process| ListedSizes::of(Some(process.pid()))).collect();
    ["Pss", "Rss"].map(|name| rollups.iter().map(|rollup| rollup.as_ref()?.bytes(name)).sum())
}

struct SharedRun {
    seconds: f64,
    memory: [Option<u64>; 2],
    ends: Vec<Value>,
}

#[derive(Serialize)]
struct More {
    processes: Vec<Value>,
    response: Response,
}

#[derive(Serialize)]
struct Response {
    total_seconds: f64,
    first_load_seconds: Option<f64>,
    later_load_seconds: Option<f64>,
    later_load_fraction: Option<f64>,
    first_ready_seconds: Option<f64>,
    later_ready_seconds: Option<f64>,
    pss_sum_bytes: Option<u64>,
    rss_sum_bytes: Option<u64>,
}

impl SharedRun {
    fn checksum_ok(&self) -> Option<bool> {
        let each: Option<Vec<bool>> =
            self.ends.iter().map(|end| end["checksum_ok"].as_bool()).collect();
        each.map(|all| all.into_iter().all(|ok| ok))
    }

    fn checksum(&self) -> Option<Checksum> {
        self.ends[0]["checksum"].as_str()?.parse().ok().map(Checksum)
    }

    fn sum(&self, key: &str) -> u64 {
        self.ends.iter().filter_map(|end| end[key].as_u64()).sum()
    }

    fn threads(&self) -> impl Iterator<Item = &Value> {
        self.ends.iter().filter_map(|end| end["threads"].as_array()).flatten()
    }

    fn sample(&self) -> Sample {
        let faults = |key: &str| self.threads().filter_map(|thread| thread[key].as_i64()).sum();
        Sample {
            iteration: 0,
            seconds: self.seconds,
            bytes: self.sum("bytes"),
            blocks: self.sum("blocks"),
            covered_fraction: self.ends[0]["covered_fraction"].as_f64(),
            checksum: self.checksum(),
            major_faults: faults("major_faults"),
            minor_faults: faults("minor_faults"),
        }
    }

    fn end(&self) -> End<&Value, &Value, More> {
        End {
            seconds: self.seconds,
            bytes: self.sum("bytes"),
            blocks: self.sum("blocks"),
            distinct_bytes: self.ends[0]["distinct_bytes"].as_u64(),
            covered_fraction: self.ends[0]["covered_fraction"].as_f64(),
            checksum: self.checksum(),
            checksum_ok: self.checksum_ok(),
            threads: self.threads().collect(),
            setup: &self.ends[0]["setup"],
            more: More {
                processes: self.ends.iter().map(|end| end["response"].clone()).collect(),
                response: self.response(),
            },
        }
    }

    fn response(&self) -> Response {
        let figures = |name: &str| -> Vec<Option<f64>> {
            self.ends.iter().map(|end| end["response"][name].as_f64()).collect()
        };
        let (loads, totals) = (figures("prefault_seconds"), figures("total_seconds"));
        let (first, later) = (loads[0], known_median(&loads[1..]));
        Response {
            total_seconds: self.seconds,
            first_load_seconds: first,
            later_load_seconds: later,
            later_load_fraction: first.zip(later).map(|(first, later)| later / first),
            first_ready_seconds: totals[0],
            later_ready_seconds: known_median(&totals[1..]),
            pss_sum_bytes: self.memory[0],
            rss_sum_bytes: self.memory[1],
        }
    }
}

/// Return the median; None if there are no figures or one is unknown.
fn known_median(figures: &[Option<f64>]) -> Option<f64> {
    median(figures.iter().copied().collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_nothing_or_of_the_unknown_is_not_zero() {
        assert_eq!(known_median(&[]), None);
        assert_eq!(known_median(&[Some(1.0), None]), None);
        assert_eq!(known_median(&[Some(9.0), Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(known_median(&[Some(4.0), Some(1.0)]), Some(2.5));
    }
}
