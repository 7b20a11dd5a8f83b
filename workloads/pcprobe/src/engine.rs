//! The engines that drive the disk.

use crate::fio::Fio;
use crate::tally::Figures;
use crate::work::PhaseWork;
use crate::{ring, threads};
use clap::ValueEnum;
use contract::Failure;
use serde::Serialize;
use std::io;
use std::time::Duration;

/// The requested engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// fio if it is installed, otherwise the program's own loop
    Auto,
    /// The program's own loop: `io_uring` if it is permitted, otherwise threads
    Own,
    /// fio
    Fio,
    /// The program's own loop on `io_uring`
    #[value(name = "io_uring")]
    IoUring,
    /// The program's own loop of threads that call pread(2) and pwrite(2)
    Threads,
}

/// Engine that drives the disk.
#[derive(Debug)]
pub enum Engine {
    /// The program's own loop on `io_uring`.
    IoUring,
    /// The program's own loop of threads, and the reason for it.
    Threads(String),
    /// fio.
    Fio(Fio),
}

/// An engine in the report.
#[derive(Debug, Serialize)]
pub struct EngineFigures {
    name: &'static str,
    version: Option<String>,
    reason: Option<String>,
}

impl Engine {
    /// Return the requested engine, or the best one available. Fails with [`Failure::CannotHere`]
    /// if it was named and is not available.
    pub fn choose(choice: EngineChoice) -> Result<Self, Failure> {
        let cannot = |reason: String| Err(Failure::CannotHere(reason));
        match (choice, ring::is_allowed()) {
            (EngineChoice::Fio, _) => Fio::find().map(Self::Fio).or_else(cannot),
            (EngineChoice::Threads, _) => Ok(Self::Threads("asked for".to_owned())),
            (EngineChoice::IoUring, Err(cause)) => {
                cannot(format!("there is no io_uring here: {cause}"))
            }
            (EngineChoice::Auto, ring) => {
                Ok(Fio::find().map_or_else(|_| Self::own(ring), Self::Fio))
            }
            (_, ring) => Ok(Self::own(ring)),
        }
    }

    fn own(ring: io::Result<()>) -> Self {
        match ring {
            Ok(()) => Self::IoUring,
            Err(cause) => Self::Threads(format!("there is no io_uring here: {cause}")),
        }
    }

    /// Do the work and count it. The counted time is that during which I/Os were submitted. Fails
    /// with the error of the system, or of fio.
    pub fn drive(&self, work: &PhaseWork<'_>) -> io::Result<Figures> {
        let counted = match self {
            Self::Fio(fio) => return fio.drive(work),
            Self::IoUring => ring::drive(work)?,
            Self::Threads(_) => threads::drive(work)?,
        };
        let elapsed: Duration = work.begun.elapsed();
        Ok(counted.figures(elapsed.min(work.phase.time)))
    }

    /// Return what the report says about the engine.
    pub fn figures(&self) -> EngineFigures {
        match self {
            Self::IoUring => EngineFigures { name: "io_uring", version: None, reason: None },
            Self::Threads(reason) => {
                EngineFigures { name: "threads", version: None, reason: Some(reason.clone()) }
            }
            Self::Fio(fio) => EngineFigures {
                name: "fio",
                version: Some(fio.version.clone()),
                reason: Some(fio.ioengine.to_owned()),
            },
        }
    }

    /// Return a description for the announcement.
    pub fn description(&self) -> String {
        match self {
            Self::IoUring => "its own io_uring loop".to_owned(),
            Self::Threads(_) => "its own threads".to_owned(),
            Self::Fio(fio) => format!("{} with {}", fio.version, fio.ioengine),
        }
    }
}
