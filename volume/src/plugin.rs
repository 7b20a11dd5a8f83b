//! The plugin for nbdkit: moves the bytes, and replies when the model says.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use nbdkit::{plugin, Error, Flags, Result, Server, ThreadModel};
use rustix::io::Errno;

use crate::control;
use crate::model::Volume;
use crate::request::{Direction, Outcome, Request};
use crate::spec::VolumeSpec;

static SPEC: OnceLock<VolumeSpec> = OnceLock::new();
static SERVED: OnceLock<Served> = OnceLock::new();

/// The volume that this process serves.
pub(crate) struct Served {
    file: File,
    bytes: u64,
    began: Instant,
    volume: Mutex<Volume>,
    account_file: Option<PathBuf>,
}

impl Served {
    fn open(spec: &VolumeSpec) -> std::result::Result<Self, String> {
        let describe = |error: std::io::Error| format!("{}: {error}", spec.file.display());
        let file = OpenOptions::new().read(true).write(true).open(&spec.file).map_err(describe)?;
        let bytes = file.metadata().map_err(describe)?.len();
        let volume = Volume::new(spec, bytes).map_err(|error| error.to_string())?;
        Ok(Self {
            file,
            bytes,
            began: Instant::now(),
            volume: Mutex::new(volume),
            account_file: spec.account_file.clone(),
        })
    }

    /// Return the volume's clock in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Run a function on the model.
    pub(crate) fn with_volume<T>(&self, run: impl FnOnce(&mut Volume, u64) -> T) -> T {
        let mut volume = self.volume.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now_ns = self.now_ns();
        run(&mut volume, now_ns)
    }

    /// Let a request arrive, move its bytes, and return at the time of its reply.
    fn serve(
        &self,
        request: &Request,
        transfer: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<()> {
        let outcome = self.with_volume(|volume, now_ns| volume.arrive(request, now_ns));
        let moved = match outcome {
            Outcome::Completes { .. } => transfer(&self.file).map_err(|error| {
                Error::new(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()), error)
            }),
            Outcome::Fails { .. } => {
                Err(Error::new(Errno::IO.raw_os_error(), "the volume fails this request"))
            }
        };
        let (Outcome::Completes { at_ns } | Outcome::Fails { at_ns }) = outcome;
        self.sleep_until(at_ns);
        moved
    }

    fn sleep_until(&self, at_ns: u64) {
        let remaining = at_ns.saturating_sub(self.now_ns());
        if remaining > 0 {
            std::thread::sleep(Duration::from_nanos(remaining));
        }
    }

    fn write_account(&self) {
        if let Some(path) = &self.account_file {
            let account = self.with_volume(|volume, now_ns| volume.account(now_ns));
            if let Err(error) = std::fs::write(path, format!("{account}\n")) {
                eprintln!("pcvolume: {}: {error}", path.display());
            }
        }
    }
}

/// One connection; all share the volume.
struct Connection;

fn served() -> &'static Served {
    SERVED.get().expect("nbdkit calls get_ready before it opens a connection")
}

fn refuse(message: impl std::fmt::Display) -> Error {
    Error::new(Errno::INVAL.raw_os_error(), message.to_string())
}

impl Server for Connection {
    fn name() -> &'static str {
        "pcvolume"
    }

    fn config(key: &str, value: &str) -> Result<()> {
        if key != "spec" {
            return Err(refuse(format!("there is no parameter {key}; the only one is spec=FILE")));
        }
        let spec = VolumeSpec::read(Path::new(value)).map_err(refuse)?;
        SPEC.set(spec).map_err(|_| refuse("spec is given twice"))
    }

    fn config_complete() -> Result<()> {
        SPEC.get().map(drop).ok_or_else(|| refuse("spec=FILE is missing"))
    }

    /// Open the file after nbdkit has become a daemon: threads do not survive its fork.
    fn after_fork() -> Result<()> {
        let spec = SPEC.get().expect("nbdkit calls config_complete first");
        let served = Served::open(spec).map_err(refuse)?;
        SERVED.set(served).map_err(|_| refuse("the volume is served already"))?;
        if let Some(path) = &spec.control_socket {
            control::listen(path, self::served()).map_err(refuse)?;
        }
        Ok(())
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        // The default slack of a sleep, 50 us, would be added to every latency (prctl(2)).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Ok(Box::new(Self))
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(served().bytes).map_err(refuse)
    }

    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_write(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_flush(&self) -> Result<bool> {
        Ok(true)
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let request =
            Request { direction: Direction::Read, offset, length: buffer.len() as u64 };
        served().serve(&request, |file| file.read_exact_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64, _flags: Flags) -> Result<()> {
        let request =
            Request { direction: Direction::Write, offset, length: buffer.len() as u64 };
        served().serve(&request, |file| file.write_all_at(buffer, offset))
    }

    fn flush(&self) -> Result<()> {
        served().file.sync_data().map_err(|error| {
            Error::new(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()), error)
        })
    }

    fn unload() {
        if let Some(served) = SERVED.get() {
            served.write_account();
        }
    }
}

plugin!(Connection {
    after_fork,
    can_flush,
    can_multi_conn,
    can_write,
    config,
    config_complete,
    flush,
    thread_model,
    unload,
    write_at
});
