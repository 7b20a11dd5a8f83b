//! The volume that this process serves: moves the bytes, and returns when the model says.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{fallocate, flock, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use crate::account::Upkeep;
use crate::event::{Event, EventError};
use crate::model::{Statement, Volume};
use crate::request::{Decision, Request, NEVER_NS};
use crate::sleeper::{monotonic_ns, Sleeper, NS_PER_SECOND};
use crate::spec::{ModelSpec, SpecError};

/// The longest sleep that a disconnection or the end of the server does not interrupt.
const SHORT_NS: u64 = 100_000_000;

/// The longest sleep in an endless pause before it is checked whether the pause is over.
const CHECK_NS: u64 = 500_000_000;

/// A long sleep, in nanoseconds. Fails if the reply is not wanted any more.
pub(crate) type Nap = fn(u64) -> Result<()>;

/// The way to the bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the page cache of this machine.
    Cached,
    /// Past it (`O_DIRECT`).
    Direct,
}

/// The model in force, since when, and the number of models before it.
struct Live {
    volume: Volume,
    began_ns: u64,
    generation: u64,
}

/// A decision, and the model that made it.
struct Arrival {
    decision: Decision,
    began_ns: u64,
    generation: u64,
}

/// The volume that this process serves.
pub(crate) struct Served {
    file: File,
    bytes: u64,
    live: Mutex<Live>,
    sleeper: Sleeper,
    nap: Nap,
}

impl Served {
    /// Open the file of a volume, and lock it against a second server.
    pub(crate) fn open(
        path: &Path,
        model: &ModelSpec,
        access: Access,
        nap: Nap,
    ) -> std::result::Result<Self, String> {
        let describe = |error: Error| format!("{}: {error}", path.display());
        let flags = if access == Access::Direct { OFlags::DIRECT } else { OFlags::empty() };
        #[allow(clippy::cast_possible_wrap)] // flags of open(2) are an int
        let flags = flags.bits() as i32;
        let mut opening = OpenOptions::new();
        opening.read(true).write(true).custom_flags(flags);
        let mut file = opening.open(path).map_err(describe)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| format!("{}: another process serves this file", path.display()))?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(describe)?;
        if bytes == 0 {
            return Err(format!(
                "{}: the file is empty, so the volume has no size",
                path.display()
            ));
        }
        let volume = Volume::new(model, bytes).map_err(|error| error.to_string())?;
        let live = Mutex::new(Live { volume, began_ns: monotonic_ns(), generation: 0 });
        Ok(Self { file, bytes, live, sleeper: Sleeper::default(), nap })
    }

    /// Return the length of the volume.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begin the volume's clock: no request has arrived yet.
    pub(crate) fn begin(&self) {
        self.lock().began_ns = monotonic_ns();
    }

    /// Replace the model. Return the new one, described by its own state.
    pub(crate) fn configure(&self, spec: &ModelSpec) -> std::result::Result<ModelSpec, SpecError> {
        let volume = Volume::new(spec, self.bytes)?;
        let mut live = self.lock();
        // The old model is dropped after the lock: it may be large.
        let before = std::mem::replace(&mut live.volume, volume);
        live.began_ns = monotonic_ns();
        live.generation += 1;
        let in_force = live.volume.describe(0);
        drop(live);
        drop(before);
        Ok(in_force)
    }

    /// Return the model in force, described by its own state.
    pub(crate) fn describe(&self) -> ModelSpec {
        let live = self.lock();
        live.volume.describe(live.now_ns())
    }

    /// Return the account.
    pub(crate) fn account(&self) -> Statement {
        let live = self.lock();
        live.volume.account(live.now_ns())
    }

    /// Add an event whose times count from now.
    pub(crate) fn add_event(&self, event: Event) -> std::result::Result<(), EventError> {
        event.check()?;
        let mut live = self.lock();
        let now_seconds = live.now_ns() as f64 / NS_PER_SECOND as f64;
        live.volume.add_event(event.later_by(now_seconds))
    }

    /// Let a request arrive, move its bytes, and return when its reply is due.
    pub(crate) fn request(
        &self,
        request: &Request,
        transfer: impl FnOnce(&File) -> Result<()>,
    ) -> Result<()> {
        let arrival = self.arrive(|volume, now_ns| volume.arrive(request, now_ns));
        let (done, error) = self.carry_out(&arrival, transfer);
        self.complete(&arrival, |volume, now_ns| {
            volume.complete(request, &arrival.decision, now_ns, error);
        });
        done
    }

    /// Carry out a flush, a discard or zeroes, which only a pause and a detachment concern.
    pub(crate) fn upkeep(
        &self,
        upkeep: Upkeep,
        act: impl FnOnce(&File) -> Result<()>,
    ) -> Result<()> {
        let arrival = self.arrive(|volume, now_ns| volume.decide_upkeep(now_ns));
        let (done, error) = self.carry_out(&arrival, act);
        self.complete(&arrival, |volume, now_ns| {
            volume.complete_upkeep(upkeep, &arrival.decision, now_ns, error);
        });
        done
    }

    fn arrive(&self, decide: impl FnOnce(&mut Volume, u64) -> Decision) -> Arrival {
        let mut live = self.lock();
        let now_ns = live.now_ns();
        let decision = decide(&mut live.volume, now_ns);
        Arrival { decision, began_ns: live.began_ns, generation: live.generation }
    }

    /// Act on the file and wait for the time of the reply. Return the outcome, and the error of the
    /// file as a text.
    fn carry_out(
        &self,
        arrival: &Arrival,
        act: impl FnOnce(&File) -> Result<()>,
    ) -> (Result<()>, Option<String>) {
        if arrival.decision.fails {
            return (self.wait(arrival).and(Err(Errno::IO.into())), None);
        }
        let done = act(&self.file);
        // Without support for fallocate, nbdkit writes zeroes instead.
        let failed = done.as_ref().err();
        let error = failed.filter(|error| error.raw_os_error() != Some(UNSUPPORTED));
        let error = error.map(ToString::to_string);
        (done.and(self.wait(arrival)), error)
    }

    fn complete(&self, arrival: &Arrival, count: impl FnOnce(&mut Volume, u64)) {
        let mut live = self.lock();
        if live.generation == arrival.generation {
            let now_ns = live.now_ns();
            count(&mut live.volume, now_ns);
        }
    }

    fn wait(&self, arrival: &Arrival) -> Result<()> {
        let is_endless = arrival.decision.at_ns == NEVER_NS;
        let due_ns = arrival.began_ns.saturating_add(arrival.decision.at_ns);
        loop {
            let left_ns = due_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 || (is_endless && self.lock().generation != arrival.generation) {
                return Ok(());
            }
            if left_ns > SHORT_NS {
                (self.nap)((left_ns - SHORT_NS / 2).min(CHECK_NS))?;
            } else {
                self.sleeper.sleep_until(due_ns);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of fallocate(2) where the file system lacks the operation.
pub(crate) const UNSUPPORTED: i32 = Errno::OPNOTSUPP.raw_os_error();

impl Live {
    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.began_ns)
    }
}

/// Free the space of a range, which then reads as zeroes.
pub(crate) fn punch_hole(file: &File, offset: u64, count: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, offset, count)?)
}

/// Zero a range without a hole, so that its space stays allocated; with one where the file system
/// knows no other way.
pub(crate) fn zero_range(file: &File, offset: u64, count: u64) -> Result<()> {
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, offset, count) {
        Err(Errno::OPNOTSUPP) => punch_hole(file, offset, count),
        done => Ok(done?),
    }
}
