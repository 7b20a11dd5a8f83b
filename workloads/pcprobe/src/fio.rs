//! fio as the engine: the same phases, one job each, its own JSON read several times a second.

use crate::engine::Work;
use crate::interruption;
use crate::ring;
use crate::series::Rate;
use crate::tally::Figures;
use serde_json::{json, Deserializer, Value};
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// fio reports so often at least, so that the first report ends the warm-up as the program's own loop has it. fio's own
/// `ramp_time` leaves out what was under way when it ended, which is much of a short phase behind a slow cap.
const INTERVAL: Duration = Duration::from_millis(300);
/// And no more often than so many times.
const MOST_REPORTS: u32 = 120;
/// Less than this is no rate.
const LEAST_SECONDS: f64 = 0.3;

/// A fio that runs here.
#[derive(Debug, Clone)]
pub struct Fio {
    /// As it says itself, `fio-3.39`.
    pub version: String,
    /// Which of its I/O engines is used.
    pub ioengine: &'static str,
}

impl Fio {
    /// Looks for fio on the PATH.
    ///
    /// # Errors
    /// A sentence when there is none that runs.
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

    /// Runs the phase as one fio job.
    ///
    /// # Errors
    /// What fio says, or that its report cannot be read.
    pub fn drive(&self, work: &Work<'_>) -> io::Result<Figures> {
        if self.ioengine == "libaio" && !work.direct {
            return Err(io::Error::other(
                "without io_uring and O_DIRECT fio would wait for each I/O: try --engine own",
            ));
        }
        let output = Command::new("fio").args(self.arguments(work)).stdin(Stdio::null()).output()?;
        if !output.status.success() && !interruption::asked() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!(
                "fio: {}",
                said.lines().next().unwrap_or("it gave no reason")
            )));
        }
        let way = if work.phase.writes { "write" } else { "read" };
        figures(&String::from_utf8_lossy(&output.stdout), way, work.phase.time)
    }

    fn arguments(&self, work: &Work<'_>) -> Vec<String> {
        let phase = work.phase;
        let order = if phase.random { "rand" } else { "" };
        let way = if phase.writes { "write" } else { "read" };
        let interval = INTERVAL.max(phase.time / MOST_REPORTS);
        let mut arguments: Vec<String> = "--name=probe --thread --time_based --fallocate=none --norandommap \
             --allow_file_create=0 --output-format=json"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        arguments.extend([
            // The file has no name; this is the way to it through us.
            format!("--filename=/proc/{}/fd/{}", std::process::id(), work.file.as_raw_fd()),
            format!("--rw={order}{way}"),
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

/// The figures of fio's reports: total and percentiles from the last, which is the whole job's, and rates from the others.
fn figures(text: &str, way: &str, time: Duration) -> io::Result<Figures> {
    let reports = reports(text);
    let last = reports
        .last()
        .map(|report| &report["jobs"][0])
        .ok_or_else(|| io::Error::other("fio reported nothing"))?;
    if let Some(code) = last["error"].as_i64().filter(|code| *code != 0) {
        return Err(io::Error::other(format!("fio: error {code}")));
    }
    let ios = last[way]["total_ios"].as_u64().unwrap_or(0);
    // Past its time fio waits for what is under way and counts it no more, while the runtime goes on.
    let counts = reports.iter().filter_map(|report| count(report, way));
    let counts: Vec<Count> = counts.filter(|(seconds, _)| *seconds <= time.as_secs_f64()).collect();
    let (seconds, ios_per_second) = rate_after_warm_up(&counts);
    Ok(Figures {
        ios,
        seconds,
        ios_per_second,
        latency_us: latency_us(&last[way]["clat_ns"], ios),
        rates: rates(&counts),
    })
}

/// One JSON a second, one after the other, and now and then a note between them.
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

fn latency_us(clat: &Value, count: u64) -> Value {
    let us = |nanoseconds: &Value| nanoseconds.as_f64().filter(|_| count > 0).map(|ns| ns / 1000.0);
    let percentile = |name: &str| us(&clat["percentile"][name]);
    json!({
        "count": count,
        "p50": percentile("50.000000"),
        "p90": percentile("90.000000"),
        "p99": percentile("99.000000"),
        "max": us(&clat["max"]),
    })
}

/// What a report counted: seconds from the beginning, and I/Os.
type Count = (f64, f64);

fn count(report: &Value, way: &str) -> Option<Count> {
    let job = &report["jobs"][0][way];
    Some((job["runtime"].as_f64()? / 1000.0, job["total_ios"].as_f64()?))
}

/// The rate from the end of the warm-up to the last count, and over how long it was taken.
fn rate_after_warm_up(counts: &[Count]) -> (f64, Option<f64>) {
    let warm = counts.iter().find(|(seconds, _)| *seconds >= 0.9 * INTERVAL.as_secs_f64());
    let (Some((from, before)), Some((until, after))) = (warm, counts.last()) else { return (0.0, None) };
    let seconds = until - from;
    (seconds, (seconds >= LEAST_SECONDS).then(|| (after - before) / seconds))
}

/// The rate between each two reports that lie half a second apart or more, after the warm-up.
fn rates(counts: &[Count]) -> Vec<Rate> {
    let mut counts = counts.iter().skip_while(|(seconds, _)| *seconds < 0.9 * INTERVAL.as_secs_f64());
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

    const TIME: Duration = Duration::from_millis(3400);

    fn report(runtime: u64, total_ios: u64) -> String {
        json!({"jobs": [{"error": 0, "read": {"runtime": runtime, "total_ios": total_ios, "clat_ns": {"max": 9000,
            "percentile": {"50.000000": 1000, "90.000000": 2000, "99.000000": 3000}}}}]})
        .to_string()
    }

    #[test]
    fn reports_are_read_one_after_the_other() {
        let (first, rest) = (report(300, 450), [report(1300, 950), report(2300, 1550), report(3300, 1950)]);
        let reported = [&[first][..], &rest[..], &[report(3700, 1950)][..]].concat();
        let found = figures(&format!("fio: a {{note}}\n{}", reported.join("\n")), "read", TIME).unwrap();
        assert_eq!(
            (found.ios, found.ios_per_second),
            (1950, Some(500.0)),
            "the first 0.3 s count for nothing"
        );
        assert_eq!(found.latency_us["p99"], 3.0);
        let rates: Vec<f64> = found.rates.iter().map(|rate| rate.ios_per_second.round()).collect();
        assert_eq!(rates, [500.0, 600.0, 400.0]);
    }

    #[test]
    fn a_report_that_is_none_or_tells_an_error_is_a_failure() {
        assert!(figures("", "read", TIME).is_err());
        assert!(figures("{\"jobs\": [{\"error\": 5}]}", "read", TIME).unwrap_err().to_string().contains('5'));
        let short = [report(300, 7), report(500, 8), report(3900, 9)].join("\n");
        assert_eq!(figures(&short, "read", TIME).unwrap().ios_per_second, None, "too short for a rate");
    }
}
