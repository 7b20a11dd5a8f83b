//! fio as the engine: the same phases as one job each. Its JSON is reported several times a second.

use crate::interruption;
use crate::ring;
use crate::series::Rate;
use crate::tally::Figures;
use crate::work::PhaseWork;
use contract::latency::LatencyFigures;
use serde_json::{Deserializer, Value};
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Least interval of fio's reports: the first report ends the same warm-up as in the program's own
/// loop. fio's `ramp_time` excludes I/Os in flight at its end, which are a large part of a short
/// phase behind a slow limit.
const INTERVAL: Duration = Duration::from_millis(300);
/// Largest number of reports.
const MOST_REPORTS: u32 = 120;
/// A rate needs at least this time.
const LEAST_SECONDS: f64 = 0.3;

/// An installed fio.
#[derive(Debug, Clone)]
pub struct Fio {
    /// Its version, such as `fio-3.39`.
    pub version: String,
    /// The I/O engine of fio that is used.
    pub ioengine: &'static str,
}

impl Fio {
    /// Find fio on the PATH.
    ///
    /// # Errors
    /// A sentence if there is none that runs.
    pub fn find() -> Result<Self, String> {
        let found = Command::new("fio").arg("--version").stderr(Stdio::null()).output();
        let output = found.map_err(|cause| format!("there is no fio here: {cause}"))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !version.starts_with("fio") {
            return Err("the fio here does not run".to_owned());
        }
        let ioengine = if ring::is_allowed().is_ok() { "io_uring" } else { "libaio" };
        Ok(Self { version, ioengine })
    }

    /// Run the phase as one fio job. Fails with the error of fio, or that its report cannot be
    /// read.
    pub fn drive(&self, work: &PhaseWork<'_>) -> io::Result<Figures> {
        if self.ioengine == "libaio" && !work.direct {
            return Err(io::Error::other(
                "without io_uring and O_DIRECT fio would wait for each I/O: try --engine own",
            ));
        }
        let output =
            Command::new("fio").args(self.arguments(work)).stdin(Stdio::null()).output()?;
        if !output.status.success() && !interruption::is_requested() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!(
                "fio: {}",
                stderr.lines().next().unwrap_or("it gave no reason")
            )));
        }
        let direction = if work.phase.writes { "write" } else { "read" };
        figures(&String::from_utf8_lossy(&output.stdout), direction, work.phase.time)
    }

    fn arguments(&self, work: &PhaseWork<'_>) -> Vec<String> {
        let phase = work.phase;
        let order = if phase.random { "rand" } else { "" };
        let direction = if phase.writes { "write" } else { "read" };
        let interval = INTERVAL.max(phase.time / MOST_REPORTS);
        let mut arguments: Vec<String> =
            "--name=probe --thread --time_based --fallocate=none --norandommap \
             --allow_file_create=0 --output-format=json"
                .split_whitespace()
                .map(str::to_owned)
                .collect();
        arguments.extend([
            // The file has no name; fio opens it through this process.
            format!("--filename=/proc/{}/fd/{}", std::process::id(), work.file.as_raw_fd()),
            format!("--rw={order}{direction}"),
            format!("--bs={}", phase.block_bytes),
            format!("--size={}", work.area_bytes),
            format!("--ioengine={}", self.ioengine),
            format!("--iodepth={}", phase.depth),
            format!("--direct={}", u8::from(work.direct)),
            format!("--sync={}", if work.direct { "none" } else { "dsync" }),
            format!("--status-interval={}ms", interval.as_millis()),
            format!("--runtime={}ms", phase.time.as_millis()),
        ]);
        arguments
    }
}

/// Return the figures of fio's reports: total and percentiles from the last, which covers the whole
/// job, and rates from the others.
fn figures(text: &str, direction: &str, time: Duration) -> io::Result<Figures> {
    let reports = reports(text);
    let last = reports
        .last()
        .map(|report| &report["jobs"][0])
        .ok_or_else(|| io::Error::other("fio reported nothing"))?;
    if let Some(code) = last["error"].as_i64().filter(|code| *code != 0) {
        return Err(io::Error::other(format!("fio: error {code}")));
    }
    let ios = last[direction]["total_ios"].as_u64().unwrap_or(0);
    // After its time fio waits for I/Os in flight without counting them, while the runtime goes on.
    let counts = reports.iter().filter_map(|report| count(report, direction));
    let counts: Vec<Count> = counts.filter(|(seconds, _)| *seconds <= time.as_secs_f64()).collect();
    let (seconds, ios_per_second) = rate_after_warm_up(&counts);
    Ok(Figures {
        ios,
        seconds,
        ios_per_second,
        latency_us: Some(latency_us(&last[direction]["clat_ns"], ios)),
        rates: rates(&counts),
    })
}

/// Return the consecutive JSON reports, without the notes that fio may print between them.
fn reports(text: &str) -> Vec<Value> {
    let mut reports = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
        match stream.next() {
            Some(Ok(report)) => {
                rest = &rest[stream.byte_offset()..];
                reports.push(report);
            }
            _ => rest = &rest[1..],
        }
    }
    reports
}

fn latency_us(clat: &Value, count: u64) -> LatencyFigures {
    let us = |nanoseconds: &Value| nanoseconds.as_f64().filter(|_| count > 0).map(|ns| ns / 1000.0);
    let percentile = |name: &str| us(&clat["percentile"][name]);
    LatencyFigures {
        count,
        p50: percentile("50.000000"),
        p90: percentile("90.000000"),
        p99: percentile("99.000000"),
        max: us(&clat["max"]),
    }
}

/// The counts of a report: seconds from the beginning, and I/Os.
type Count = (f64, f64);

fn count(report: &Value, direction: &str) -> Option<Count> {
    let job = &report["jobs"][0][direction];
    Some((job["runtime"].as_f64()? / 1000.0, job["total_ios"].as_f64()?))
}

/// Return the time from the end of the warm-up to the last count, and the rate during that time.
fn rate_after_warm_up(counts: &[Count]) -> (f64, Option<f64>) {
    let warm = counts.iter().find(|(seconds, _)| *seconds >= 0.9 * INTERVAL.as_secs_f64());
    let (Some((from, before)), Some((until, after))) = (warm, counts.last()) else {
        return (0.0, None);
    };
    let seconds = until - from;
    (seconds, (seconds >= LEAST_SECONDS).then(|| (after - before) / seconds))
}

/// Return the rate between each two reports after the warm-up that are at least half a second
/// apart.
fn rates(counts: &[Count]) -> Vec<Rate> {
    let mut counts =
        counts.iter().skip_while(|(seconds, _)| *seconds < 0.9 * INTERVAL.as_secs_f64());
    let Some(mut before) = counts.next() else { return Vec::new() };
    let mut rates = Vec::new();
    for now in counts {
        if now.0 - before.0 >= 0.5 {
            let ios_per_second = (now.1 - before.1) / (now.0 - before.0);
            rates.push(Rate { until_seconds: now.0, ios_per_second });
            before = now;
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TIME: Duration = Duration::from_millis(3400);

    fn report(runtime: u64, total_ios: u64) -> String {
        json!({"jobs": [{"error": 0, "read": {"runtime": runtime, "total_ios": total_ios, "clat_ns": {"max": 9000,
            "percentile": {"50.000000": 1000, "90.000000": 2000, "99.000000": 3000}}}}]})
        .to_string()
    }

    #[test]
    fn reports_are_read_one_after_the_other() {
        let (first, rest) =
            (report(300, 450), [report(1300, 950), report(2300, 1550), report(3300, 1950)]);
        let reported = [&[first][..], &rest[..], &[report(3700, 1950)][..]].concat();
        let found =
            figures(&format!("fio: a {{note}}\n{}", reported.join("\n")), "read", TIME).unwrap();
        assert_eq!(
            (found.ios, found.ios_per_second),
            (1950, Some(500.0)),
            "the first 0.3 s count for nothing"
        );
        assert_eq!(found.latency_us.unwrap().p99, Some(3.0));
        let rates: Vec<f64> = found.rates.iter().map(|rate| rate.ios_per_second.round()).collect();
        assert_eq!(rates, [500.0, 600.0, 400.0]);
    }

    #[test]
    fn no_report_or_one_with_an_error_is_a_failure() {
        assert!(figures("", "read", TIME).is_err());
        assert!(figures("{\"jobs\": [{\"error\": 5}]}", "read", TIME)
            .unwrap_err()
            .to_string()
            .contains('5'));
        let short = [report(300, 7), report(500, 8), report(3900, 9)].join("\n");
        assert_eq!(
            figures(&short, "read", TIME).unwrap().ios_per_second,
            None,
            "too short for a rate"
        );
    }
}
