//! The lines of one run.

use crate::load::{Load, Loaded};
use crate::lookup::LookupResults;
use contract::index::BUCKET_BYTES;
use contract::json_lines::{Checksum, End, Sample, ThreadLine};
use contract::latency::{Histogram, LatencyFigures};
use contract::usage::Usage;
use contract::Failure;
use serde::Serialize;

/// Everything that one run did.
#[derive(Debug)]
pub struct Run {
    /// Method that loaded the index.
    pub load: Load,
    /// Length of all files together.
    pub size_bytes: u64,
    /// Number of files.
    pub files: usize,
    /// Whether the sums of the files are compared with their sidecars.
    pub expects_sidecars: bool,
    /// Requested number of lookups after loading.
    pub lookups: u64,
    /// Loaded data.
    pub loaded: Loaded,
    /// Results while loading, if lookups do the loading.
    pub load_results: LookupResults,
    /// Results after loading.
    pub results: LookupResults,
    /// Durations of single lookups after loading.
    pub latency: Histogram,
    /// Time from the start until the load was done or stopped.
    pub load_seconds: f64,
    /// Time from the first lookup after loading to the last.
    pub lookup_seconds: f64,
    /// Time from the start to the end.
    pub seconds: f64,
    /// The thread that looks up, then those that loaded.
    pub threads: Vec<ThreadLine>,
}

/// Durations of the set-up, outside the measured part.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Setup {
    /// Time to open, map and advise the files.
    pub open_seconds: f64,
    /// Time to compute the start-up set.
    pub keys_seconds: f64,
}

/// The keys of `end` that other workloads do not have.
#[derive(Debug, Serialize)]
pub struct More {
    response: Response,
    index: IndexLine,
    answers: AnswersLine,
    lookup_latency_us: LatencyFigures,
}

/// Figures of this workload; None for a part that was not reached.
#[derive(Debug, Serialize)]
struct Response {
    load_seconds: Option<f64>,
    lookup_seconds: Option<f64>,
    ready_seconds: Option<f64>,
    lookups_per_second: Option<f64>,
    lookup_p99_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct IndexLine {
    files: usize,
    buckets: u64,
}

#[derive(Debug, Serialize)]
struct AnswersLine {
    found: u64,
    absent: u64,
    wrong: u64,
    wrong_files: Option<u64>,
}

impl Run {
    /// Return the line of the only pass.
    pub fn sample(&self) -> Sample {
        let usage: Usage = self.threads.iter().map(|thread| thread.usage).sum();
        Sample {
            iteration: 0,
            seconds: self.seconds,
            bytes: self.bytes(),
            blocks: self.asked(),
            covered_fraction: self.covered_fraction(),
            checksum: Some(self.checksum()),
            major_faults: usage.major_faults,
            minor_faults: usage.minor_faults,
        }
    }

    /// Return the closing line.
    pub fn end(&self, setup: Setup) -> End<ThreadLine, Setup, More> {
        End {
            seconds: self.seconds,
            bytes: self.bytes(),
            blocks: self.asked(),
            distinct_bytes: Some(self.loaded.bytes.max(self.results.asked * BUCKET_BYTES as u64)),
            covered_fraction: self.covered_fraction(),
            checksum: Some(self.checksum()),
            checksum_ok: Some(self.is_right()),
            threads: self.threads.clone(),
            setup,
            more: More {
                response: self.response(),
                index: IndexLine {
                    files: self.files,
                    buckets: self.size_bytes / BUCKET_BYTES as u64,
                },
                answers: self.answers(),
                lookup_latency_us: self.latency.figures(),
            },
        }
    }

    /// Fail if an answer differs from the one known beforehand.
    ///
    /// # Errors
    /// The number of wrong answers and files.
    pub fn require_right(&self) -> Result<(), Failure> {
        if self.is_right() {
            return Ok(());
        }
        let (wrong, asked) = (self.answers().wrong, self.asked());
        Err(Failure::Failed(format!(
            "{wrong} of {asked} answers were wrong, and {} files did not add up to what their sidecars say",
            self.loaded.wrong_files
        )))
    }

    fn answers(&self) -> AnswersLine {
        let found = self.load_results.found + self.results.found;
        AnswersLine {
            found,
            absent: self.asked() - found,
            wrong: self.load_results.wrong + self.results.wrong,
            wrong_files: self.expects_sidecars.then_some(self.loaded.wrong_files),
        }
    }

    fn response(&self) -> Response {
        let loads = self.load != Load::None;
        let asked = self.results.asked;
        Response {
            load_seconds: (loads && !self.loaded.stopped).then_some(self.load_seconds),
            lookup_seconds: (self.lookups > 0 && self.is_ready()).then_some(self.lookup_seconds),
            ready_seconds: self.is_ready().then_some(self.seconds),
            lookups_per_second: (asked > 0).then(|| asked as f64 / self.lookup_seconds),
            lookup_p99_us: self.latency.figures().p99,
        }
    }

    /// Return whether the index is loaded and every requested lookup is answered.
    fn is_ready(&self) -> bool {
        !self.loaded.stopped && self.results.asked == self.lookups
    }

    /// Return the time spent as a fraction of the time for the whole, if each part continued at its
    /// own rate. A part that was not begun counts as nothing. None if no rate is known.
    fn covered_fraction(&self) -> Option<f64> {
        if self.is_ready() {
            return Some(1.0);
        }
        if self.loaded.stopped {
            return (self.loaded.bytes > 0)
                .then(|| self.loaded.bytes as f64 / self.size_bytes as f64);
        }
        let answered = self.results.asked as f64 / self.lookups as f64;
        let whole_seconds = self.load_seconds + self.lookup_seconds / answered;
        (answered > 0.0).then(|| (self.load_seconds + self.lookup_seconds) / whole_seconds)
    }

    fn is_right(&self) -> bool {
        let files_are_right = !self.expects_sidecars || self.loaded.wrong_files == 0;
        self.load_results.wrong == 0 && self.results.wrong == 0 && files_are_right
    }

    fn asked(&self) -> u64 {
        self.load_results.asked + self.results.asked
    }

    fn bytes(&self) -> u64 {
        self.loaded.bytes + self.results.asked * BUCKET_BYTES as u64
    }

    fn checksum(&self) -> Checksum {
        Checksum(self.load_results.checksum.wrapping_add(self.results.checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SIZE_BYTES: u64 = 100 * BUCKET_BYTES as u64;

    fn run(load: Load, loaded_bytes: u64, asked: u64) -> Run {
        let is_loaded = load == Load::None || loaded_bytes == SIZE_BYTES;
        Run {
            load,
            size_bytes: SIZE_BYTES,
            files: 1,
            expects_sidecars: true,
            lookups: 100,
            loaded: Loaded { bytes: loaded_bytes, wrong_files: 0, stopped: !is_loaded },
            load_results: LookupResults::default(),
            results: LookupResults {
                asked,
                found: asked,
                stopped: asked < 100,
                ..LookupResults::default()
            },
            latency: Histogram::new(),
            load_seconds: 8.0,
            lookup_seconds: 2.0,
            seconds: 10.0,
            threads: Vec::new(),
        }
    }

    #[test]
    fn a_whole_run_has_every_figure() {
        let end = json!(run(Load::Sequential, SIZE_BYTES, 100).end(Setup::default()));
        assert_eq!(end["covered_fraction"], 1.0);
        assert_eq!(end["response"]["ready_seconds"], 10.0);
        assert_eq!(end["response"]["load_seconds"], 8.0);
        assert_eq!(end["response"]["lookups_per_second"], 50.0);
        assert!(end["response"]["lookup_p99_us"].is_null(), "nothing was timed");
        assert_eq!(end["checksum_ok"], true);
    }

    #[test]
    fn what_was_not_reached_is_null() {
        let response = json!(run(Load::Sequential, SIZE_BYTES / 4, 0).response());
        for name in ["load_seconds", "lookup_seconds", "ready_seconds", "lookups_per_second"] {
            assert!(response[name].is_null(), "{name}");
        }
        assert!(run(Load::None, 0, 100).response().load_seconds.is_none(), "nothing was loaded");
    }

    #[test]
    fn coverage_leads_to_the_time_of_the_whole() {
        assert_eq!(run(Load::Sequential, SIZE_BYTES / 4, 0).covered_fraction(), Some(0.25));
        // 8 s of loading, then 2 s for a quarter of the lookups: 16 s for all.
        assert_eq!(run(Load::Sequential, SIZE_BYTES, 25).covered_fraction(), Some(10.0 / 16.0));
        assert_eq!(run(Load::Sequential, 0, 0).covered_fraction(), None);
        assert_eq!(run(Load::Sequential, SIZE_BYTES, 0).covered_fraction(), None);
    }

    #[test]
    fn a_wrong_answer_or_a_wrong_file_fails_the_run() {
        let mut wrong = run(Load::Parallel, SIZE_BYTES, 100);
        wrong.loaded.wrong_files = 1;
        assert!(wrong.require_right().unwrap_err().to_string().contains("1 files"));
        wrong.expects_sidecars = false;
        assert!(wrong.require_right().is_ok());
        wrong.load_results.wrong = 1;
        assert_eq!(wrong.end(Setup::default()).checksum_ok, Some(false));
        assert!(wrong.require_right().is_err());
    }
}
