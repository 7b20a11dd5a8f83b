//! The report: all figures, their circumstances, and the reasons for missing ones.

use crate::cgroup::CgroupLimits;
use crate::device::Storage;
use crate::engine::EngineFigures;
use crate::machine::Machine;
use crate::outcome::PhaseLine;
use crate::summary::Summary;
use serde::Serialize;

/// The version of this format; `docs/FORMAT.md` describes it.
pub const PROBE_VERSION: u32 = 1;

/// The report of one probe.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "probe")]
pub struct Report<'a> {
    /// Version of this format.
    pub probe_version: u32,
    /// Version of the program.
    pub program_version: &'static str,
    /// When the measurement began.
    pub begun_unix_seconds: u64,
    /// Whether it was not interrupted.
    pub complete: bool,
    /// Name of the host, if requested.
    pub host_name: Option<String>,
    pub asked: Asked,
    pub engine: EngineFigures,
    pub file: FileLine<'a>,
    pub machine: Machine,
    pub cgroup: CgroupLimits,
    /// The disk and its file system.
    pub storage: &'a Storage,
    pub summary: Summary,
    pub phases: Vec<PhaseLine<'a>>,
}

/// The options of the measurement. The folder is named only with the host.
#[derive(Debug, Serialize)]
pub struct Asked {
    /// Largest size of the file.
    pub size_bytes: u64,
    /// Duration of the measurement.
    pub seconds: u64,
    pub folder: Option<String>,
}

/// The measured file.
#[derive(Debug, Serialize)]
pub struct FileLine<'a> {
    /// Bytes that the first phase wrote.
    pub written_bytes: u64,
    /// Whether it bypassed the page cache.
    pub direct: bool,
    pub reason: Option<&'a str>,
}
