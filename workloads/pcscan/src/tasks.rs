//! Scans by tasks: one task per file on one executor, and the heartbeat as one more task.

use crate::dataset::{Io, Source};
use crate::exec::{Exec, ExecOptions};
use crate::fixes::{Fix, FixOptions, Scan};
use crate::heartbeat::Heartbeat;
use crate::hints::Hints;
use crate::reads;
use crate::ring::Ring;
use crate::scan::{Pass, ScanResult, Tally, Work};
use contract::failure::OrFailure;
use contract::json_lines::ThreadLine;
use contract::usage::Usage;
use contract::Failure;
use io_uring::opcode;
use memmap2::Mmap;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// An executor, and what its tasks share.
#[derive(Debug)]
pub struct Executor {
    runtime: Runtime,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    exec: Exec,
    io: Io,
    hints: Hints,
    fix: FixOptions,
    ring: Option<Arc<Ring>>,
    heart: Option<Arc<Heartbeat>>,
}

impl Executor {
    /// Start the executor, and the ring if one is needed. Fails with [`Failure::CannotHere`] if
    /// either is not available.
    pub fn new(
        options: ExecOptions,
        io: Io,
        hints: Hints,
        fix: FixOptions,
        heart: Option<Arc<Heartbeat>>,
    ) -> Result<Self, Failure> {
        let ring = ring_for(io, fix.fix)?.map(Arc::new);
        let exec = options.exec;
        let mut builder = match exec {
            Exec::AsyncMt => Builder::new_multi_thread(),
            _ => Builder::new_current_thread(),
        };
        builder.worker_threads(options.workers).enable_all();
        let runtime = builder.build().or_cannot_here("cannot start the executor")?;
        Ok(Self { runtime, shared: Arc::new(Shared { exec, io, hints, fix, ring, heart }) })
    }

    /// Scan every file once. Fails with the first that any scan met.
    pub fn pass(&self, sources: &[Arc<Source>], work: Work) -> Result<Pass, Failure> {
        let before = Usage::of_this_process();
        let started = Instant::now();
        let tallies = self.runtime.block_on(self.shared.clone().scan_all(sources, work))?;
        let blocks = tallies.iter().map(|tally| tally.result.pieces).sum();
        let usage = Usage::of_this_process() - before;
        let whole = ThreadLine { seconds: started.elapsed().as_secs_f64(), blocks, usage };
        Ok(Pass { tallies, threads: vec![whole] })
    }
}

impl Shared {
    async fn scan_all(
        self: Arc<Self>,
        sources: &[Arc<Source>],
        work: Work,
    ) -> Result<Vec<Tally>, Failure> {
        let beside = self.beside()?;
        let tallies = if self.exec == Exec::AsyncSequential {
            self.one_after_another(sources, work).await?
        } else {
            self.together(sources, work).await?
        };
        if let Some(heart) = &self.heart {
            heart.stop();
        }
        beside.iter().for_each(JoinHandle::abort);
        Ok(tallies)
    }

    async fn one_after_another(
        self: &Arc<Self>,
        sources: &[Arc<Source>],
        work: Work,
    ) -> Result<Vec<Tally>, Failure> {
        let mut tallies = Vec::new();
        for source in sources {
            tallies.push(joined(tokio::spawn(self.clone().scan(source.clone(), work))).await?);
        }
        Ok(tallies)
    }

    async fn together(
        self: &Arc<Self>,
        sources: &[Arc<Source>],
        work: Work,
    ) -> Result<Vec<Tally>, Failure> {
        let start = |source: &Arc<Source>| tokio::spawn(self.clone().scan(source.clone(), work));
        let running: Vec<JoinHandle<_>> = sources.iter().map(start).collect();
        let mut tallies = Vec::new();
        for scan in running {
            tallies.push(joined(scan).await?);
        }
        Ok(tallies)
    }

    /// Start the tasks beside the scans: delivery of the ring's results, and the heartbeat.
    fn beside(&self) -> Result<Vec<JoinHandle<Result<(), Failure>>>, Failure> {
        let mut tasks = Vec::new();
        if let Some(ring) = self.ring.clone() {
            tasks.push(tokio::spawn(async move { ring.wake().await }));
        }
        if let Some(heart) = self.heart.clone() {
            heart.start()?;
            tasks.push(tokio::spawn(async move { heart.beat().await }));
        }
        Ok(tasks)
    }

    async fn scan(self: Arc<Self>, source: Arc<Source>, work: Work) -> Result<Tally, Failure> {
        let started = Instant::now();
        let map = self.hints.give(&source)?;
        let advise = started.elapsed();
        let result = self.read(source, map, work).await?;
        Ok(Tally { started, ended: Instant::now(), advise, result })
    }

    async fn read(
        &self,
        source: Arc<Source>,
        map: Option<Arc<Mmap>>,
        work: Work,
    ) -> Result<ScanResult, Failure> {
        match (self.io, map, &self.ring) {
            (Io::Mmap, Some(map), ring) => self.fixed(source, map, work, ring.clone()).run().await,
            (Io::TokioFs | Io::Conventional, _, _) => reads::through_tokio(&source, &work).await,
            (Io::Uring | Io::UringDirect, _, Some(ring)) => {
                reads::through_ring(&source, &work, ring).await
            }
            _ => reads::waiting(&source, &work),
        }
    }

    fn fixed(
        &self,
        source: Arc<Source>,
        map: Arc<Mmap>,
        work: Work,
        ring: Option<Arc<Ring>>,
    ) -> Scan {
        Scan { options: self.fix, source, map, work, ring }
    }
}

fn ring_for(io: Io, fix: Fix) -> Result<Option<Ring>, Failure> {
    if io.needs_buffers() {
        return Ring::with(opcode::Read::CODE, "read").map(Some);
    }
    if fix == Fix::UringMadvise {
        return Ring::with(opcode::Madvise::CODE, "madvise").map(Some);
    }
    Ok(None)
}

async fn joined(scan: JoinHandle<Result<Tally, Failure>>) -> Result<Tally, Failure> {
    scan.await.or_failed("a scan was lost")?
}
