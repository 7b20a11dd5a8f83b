//! The lines of one run.

use crate::load::{Load, Loaded};
use crate::loaders::Share;
use crate::lookup::Answers;
use contract::index::BUCKET_BYTES;
use contract::latency::Histogram;
use contract::line::checksum;
use contract::usage::Usage;
use contract::Failure;
use serde_json::{json, Value};

/// Everything that one run did.
#[derive(Debug)]
pub struct Run {
    /// How the index was brought into memory.
    pub load: Load,
    /// Length of all files together.
    pub size_bytes: u64,
    /// How many files those are.
    pub files: usize,
    /// Whether the sums of what was read are judged.
    pub expects_sidecars: bool,
    /// Lookups wanted after loading.
    pub lookups: u64,
    /// What was loaded.
    pub loaded: Loaded,
    /// The answers while loading, where lookups are what loads.
    pub load_answers: Answers,
    /// The answers after loading.
    pub answers: Answers,
    /// How long single lookups after loading took.
    pub latency: Histogram,
    /// From the start until the load was done or out of time.
    pub load_seconds: f64,
    /// From the first lookup after loading to the last.
    pub lookup_seconds: f64,
    /// From the start to the end.
    pub seconds: f64,
    /// The thread that looks up, then those that loaded.
    pub threads: Vec<Share>,
}

/// How long each part of the set-up took, outside the measured part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    /// Opening, mapping and advising the files.
    pub open_seconds: f64,
    /// Working the start-up set out.
    pub keys_seconds: f64,
}

impl Run {
    /// The only pass.
    #[must_use]
    pub fn sample(&self) -> Value {
        let usage = self.threads.iter().fold(Usage::default(), |sum, share| sum + share.usage);
        json!({
            "type": "sample",
            "iteration": 0,
            "seconds": self.seconds,
            "bytes": self.bytes(),
            "blocks": self.asked(),
            "covered_fraction": self.covered_fraction(),
            "checksum": checksum(Some(self.checksum())),
            "major_faults": usage.major_faults,
            "minor_faults": usage.minor_faults,
        })
    }

    /// The closing line.
    #[must_use]
    pub fn end(&self, setup: &Setup) -> Value {
        let threads: Vec<Value> = self.threads.iter().map(thread).collect();
        json!({
            "type": "end",
            "seconds": self.seconds,
            "bytes": self.bytes(),
            "blocks": self.asked(),
            "distinct_bytes": self.loaded.bytes.max(self.answers.asked * BUCKET_BYTES as u64),
            "covered_fraction": self.covered_fraction(),
            "checksum": checksum(Some(self.checksum())),
            "checksum_ok": self.is_right(),
            "threads": threads,
            "setup": {"open_seconds": setup.open_seconds, "keys_seconds": setup.keys_seconds},
            "response": self.response(),
            "index": {"files": self.files, "buckets": self.size_bytes / BUCKET_BYTES as u64},
            "answers": {
                "found": self.load_answers.found + self.answers.found,
                "absent": self.asked() - self.load_answers.found - self.answers.found,
                "wrong": self.load_answers.wrong + self.answers.wrong,
                "wrong_files": self.expects_sidecars.then_some(self.loaded.wrong_files),
            },
            "lookup_latency_us": self.latency.to_json(),
        })
    }

    /// Whether every answer was the one known beforehand.
    ///
    /// # Errors
    /// When one was not.
    pub fn judge(&self) -> Result<(), Failure> {
        let wrong = self.load_answers.wrong + self.answers.wrong;
        if self.is_right() {
            return Ok(());
        }
        let asked = self.asked();
        Err(Failure::Failed(format!(
            "{wrong} of {asked} answers were wrong, and {} files did not add up to what their sidecars say",
            self.loaded.wrong_files
        )))
    }

    /// Figures of its own; one that was not reached is not known.
    fn response(&self) -> Value {
        let loads = self.load != Load::None;
        let load_seconds = (loads && !self.loaded.stopped).then_some(self.load_seconds);
        let lookup_seconds = (self.lookups > 0 && self.is_ready()).then_some(self.lookup_seconds);
        let rate = (self.answers.asked > 0).then(|| self.answers.asked as f64 / self.lookup_seconds);
        json!({
            "load_seconds": load_seconds,
            "lookup_seconds": lookup_seconds,
            "ready_seconds": self.is_ready().then_some(self.seconds),
            "lookups_per_second": rate,
            "lookup_p99_us": self.latency.to_json()["p99"],
        })
    }

    /// The index is loaded as far as it was to be, and every lookup of the start-up set is answered.
    fn is_ready(&self) -> bool {
        !self.loaded.stopped && self.answers.asked == self.lookups
    }

    /// The time spent, as a share of what the whole would take if each part went on at its own rate; what was not
    /// begun counts as nothing. None where no rate is known.
    fn covered_fraction(&self) -> Option<f64> {
        if self.is_ready() {
            return Some(1.0);
        }
        if self.loaded.stopped {
            return (self.loaded.bytes > 0).then(|| self.loaded.bytes as f64 / self.size_bytes as f64);
        }
        let answered = self.answers.asked as f64 / self.lookups as f64;
        let whole_seconds = self.load_seconds + self.lookup_seconds / answered;
        (answered > 0.0).then(|| (self.load_seconds + self.lookup_seconds) / whole_seconds)
    }

    fn is_right(&self) -> bool {
        let files_are_right = !self.expects_sidecars || self.loaded.wrong_files == 0;
        self.load_answers.wrong == 0 && self.answers.wrong == 0 && files_are_right
    }

    fn asked(&self) -> u64 {
        self.load_answers.asked + self.answers.asked
    }

    fn bytes(&self) -> u64 {
        self.loaded.bytes + self.answers.asked * BUCKET_BYTES as u64
    }

    fn checksum(&self) -> u64 {
        self.load_answers.checksum.wrapping_add(self.answers.checksum)
    }
}

fn thread(share: &Share) -> Value {
    json!({
        "seconds": share.seconds,
        "blocks": share.blocks,
        "major_faults": share.usage.major_faults,
        "minor_faults": share.usage.minor_faults,
        "voluntary_switches": share.usage.voluntary_switches,
        "involuntary_switches": share.usage.involuntary_switches,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            load_answers: Answers::default(),
            answers: Answers { asked, found: asked, stopped: asked < 100, ..Answers::default() },
            latency: Histogram::new(),
            load_seconds: 8.0,
            lookup_seconds: 2.0,
            seconds: 10.0,
            threads: Vec::new(),
        }
    }

    #[test]
    fn a_whole_run_has_every_figure() {
        let end = run(Load::Sequential, SIZE_BYTES, 100).end(&Setup::default());
        assert_eq!(end["covered_fraction"], 1.0);
        assert_eq!(end["response"]["ready_seconds"], 10.0);
        assert_eq!(end["response"]["load_seconds"], 8.0);
        assert_eq!(end["response"]["lookups_per_second"], 50.0);
        assert!(end["response"]["lookup_p99_us"].is_null(), "nothing was timed");
        assert_eq!(end["checksum_ok"], true);
    }

    #[test]
    fn what_was_not_reached_is_null() {
        let response = run(Load::Sequential, SIZE_BYTES / 4, 0).response();
        for name in ["load_seconds", "lookup_seconds", "ready_seconds", "lookups_per_second"] {
            assert!(response[name].is_null(), "{name}");
        }
        assert!(run(Load::None, 0, 100).response()["load_seconds"].is_null(), "nothing was loaded");
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
        assert!(wrong.judge().unwrap_err().to_string().contains("1 files"));
        wrong.expects_sidecars = false;
        assert!(wrong.judge().is_ok());
        wrong.load_answers.wrong = 1;
        assert_eq!(wrong.end(&Setup::default())["checksum_ok"], false);
        assert!(wrong.judge().is_err());
    }
}
