//! The async arms: one task a file on one executor, and the heartbeat as one more task among them.

use crate::arguments::{Exec, Io, Plan};
use crate::crew::{Pass, ThreadTally};
use crate::dataset::Source;
use crate::fixes::{Fix, Scan};
use crate::heartbeat::Heartbeat;
use crate::reads;
use crate::ring::Ring;
use crate::scan::{Seen, Tally, Work};
use contract::usage::Usage;
use contract::Failure;
use io_uring::opcode;
use memmap2::Mmap;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// An executor, ready, and what its tasks share.
#[derive(Debug)]
pub struct Executor {
    runtime: Runtime,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    ring: Option<Arc<Ring>>,
    heart: Option<Arc<Heartbeat>>,
}

impl Executor {
    /// Starts the executor, and makes the ring where the plan needs one.
    ///
    /// # Errors
    /// [`Failure::CannotHere`] where either cannot be had.
    pub fn new(plan: &Plan, heart: Option<Arc<Heartbeat>>) -> Result<Self, Failure> {
        let ring = ring_for(plan)?.map(Arc::new);
        let mut builder = match plan.exec {
            Exec::AsyncMt => Builder::new_multi_thread(),
            _ => Builder::new_current_thread(),
        };
        builder.worker_threads(plan.workers).enable_all();
        let runtime = builder
            .build()
            .map_err(|cause| Failure::CannotHere(format!("cannot start the executor: {cause}")))?;
        Ok(Self { runtime, shared: Arc::new(Shared { plan: plan.clone(), ring, heart }) })
    }

    /// Scans every file once.
    ///
    /// # Errors
    /// The first that any scan met.
    pub fn pass(&self, sources: &[Arc<Source>], work: Work) -> Result<Pass, Failure> {
        let before = Usage::of_this_process();
        let started = Instant::now();
        let tallies = self.runtime.block_on(self.shared.clone().scan_all(sources, work))?;
        let pieces = tallies.iter().map(|tally| tally.seen.pieces).sum();
        let usage = Usage::of_this_process() - before;
        let whole = ThreadTally { seconds: started.elapsed().as_secs_f64(), pieces, usage };
        Ok(Pass { tallies, threads: vec![whole] })
    }
}

impl Shared {
    async fn scan_all(self: Arc<Self>, sources: &[Arc<Source>], work: Work) -> Result<Vec<Tally>, Failure> {
        let beside = self.beside()?;
        let tallies = if self.plan.exec == Exec::AsyncSequential {
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

    async fn together(self: &Arc<Self>, sources: &[Arc<Source>], work: Work) -> Result<Vec<Tally>, Failure> {
        let start = |source: &Arc<Source>| tokio::spawn(self.clone().scan(source.clone(), work));
        let running: Vec<JoinHandle<_>> = sources.iter().map(start).collect();
        let mut tallies = Vec::new();
        for scan in running {
            tallies.push(joined(scan).await?);
        }
        Ok(tallies)
    }

    /// What runs beside the scans: whoever wakes the ring's waiters, and the heartbeat.
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
        let map = self.plan.hints.give(&source)?;
        let advise = started.elapsed();
        let seen = self.read(source, map, work).await?;
        Ok(Tally { started, ended: Instant::now(), advise, seen })
    }

    async fn read(&self, source: Arc<Source>, map: Option<Arc<Mmap>>, work: Work) -> Result<Seen, Failure> {
        match (self.plan.io, map, &self.ring) {
            (Io::Mmap, Some(map), ring) => self.fixed(source, map, work, ring.clone()).run().await,
            (Io::TokioFs, _, _) => reads::through_tokio(&source, &work).await,
            (Io::Uring | Io::UringDirect, _, Some(ring)) => reads::through_ring(&source, &work, ring).await,
            _ => reads::waiting(&source, &work),
        }
    }

    fn fixed(&self, source: Arc<Source>, map: Arc<Mmap>, work: Work, ring: Option<Arc<Ring>>) -> Scan {
        let Plan { fix, window_bytes, ahead_bytes, .. } = self.plan;
        Scan { fix, source, map, work, window_bytes, ahead_bytes, ring }
    }
}

fn ring_for(plan: &Plan) -> Result<Option<Ring>, Failure> {
    if plan.io.needs_buffers() {
        return Ring::with(opcode::Read::CODE, "read").map(Some);
    }
    if plan.fix == Fix::UringMadvise {
        return Ring::with(opcode::Madvise::CODE, "madvise").map(Some);
    }
    Ok(None)
}

async fn joined(scan: JoinHandle<Result<Tally, Failure>>) -> Result<Tally, Failure> {
    scan.await.map_err(|cause| Failure::of("a scan was lost", cause))?
}
