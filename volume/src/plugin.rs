//! The plugin for nbdkit: its parameters, and the operations of the protocol.

use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nbdkit::{plugin, Error, Flags, FuaFlags, Result, Server, ThreadModel};
use rustix::fs::{fadvise, Advice};
use rustix::io::Errno;

use crate::account::Upkeep;
use crate::control;
use crate::request::{Direction, Request};
use crate::served::{punch_hole, zero_range, Access, Served, UNSUPPORTED};
use crate::spec::ModelSpec;

/// Reads above this length are announced to the kernel.
const LONG_BYTES: u64 = 256 << 10;

static SERVED: OnceLock<Served> = OnceLock::new();
static SETUP: Mutex<Setup> =
    Mutex::new(Setup { file: None, control: None, model: None, listener: None });

/// The parameters, and the socket between its binding and nbdkit's fork.
struct Setup {
    file: Option<PathBuf>,
    control: Option<PathBuf>,
    model: Option<PathBuf>,
    listener: Option<UnixListener>,
}

/// One connection; all share the volume.
struct Connection;

fn setup() -> MutexGuard<'static, Setup> {
    SETUP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn served() -> &'static Served {
    SERVED.get().expect("nbdkit calls get_ready before it opens a connection")
}

fn refuse(message: impl std::fmt::Display) -> Error {
    Error::new(Errno::INVAL.raw_os_error(), message.to_string())
}

fn failed(error: std::io::Error) -> Error {
    Error::new(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()), error)
}

/// Write earlier data of the file to its disk if the client demands it of this operation.
fn sync(file: &File, flags: Flags) -> std::io::Result<()> {
    if flags.contains(Flags::FUA) {
        file.sync_data()
    } else {
        Ok(())
    }
}

/// Let the kernel read all of a long request at once. By itself it reads ahead 128 KiB at a time,
/// and a cold MiB took twice as long.
fn announce(file: &File, request: &Request) {
    if request.length > LONG_BYTES {
        let length = NonZeroU64::new(request.length);
        // Only a hint: reading works without it.
        let _ = fadvise(file, request.offset, length, Advice::WillNeed);
    }
}

extern "C" {
    /// Sleep until the time is over, the client disconnects or the server ends
    /// (nbdkit-plugin(3)).
    fn nbdkit_nanosleep(seconds: c_uint, nanoseconds: c_uint) -> c_int;
}

fn sleep_interruptibly(duration_ns: u64) -> std::io::Result<()> {
    let nanoseconds = c_uint::try_from(duration_ns).unwrap_or(c_uint::MAX);
    // SAFETY: it takes two numbers, and is called in a thread of nbdkit's.
    match unsafe { nbdkit_nanosleep(0, nanoseconds) } {
        0 => Ok(()),
        _ => Err(Errno::SHUTDOWN.into()),
    }
}

impl Server for Connection {
    fn name() -> &'static str {
        "pcvolume"
    }

    fn version() -> Option<&'static str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn description() -> Option<&'static str> {
        Some("A simulated cloud volume: limits, credits, latencies and events.")
    }

    fn config_help() -> Option<&'static str> {
        Some(
            "file=PATH       (required) The data. Its length is the volume's.\n\
             control=SOCKET  A unix socket for commands.\n\
             model=FILE      The model as JSON. Without it there are no limits and no latencies.",
        )
    }

    fn magic_config_key() -> Option<&'static str> {
        Some("file")
    }

    /// Keep a path in its absolute form, because nbdkit changes its directory later.
    fn config(key: &str, value: &str) -> Result<()> {
        let mut setup = setup();
        let parameter = match key {
            "file" => &mut setup.file,
            "control" => &mut setup.control,
            "model" => &mut setup.model,
            _ => {
                return Err(refuse(format!(
                "there is no parameter {key}; there are file=PATH, control=SOCKET and model=FILE"
            )))
            }
        };
        let path = std::path::absolute(value).map_err(|error| refuse(format!("{key}: {error}")))?;
        match parameter.replace(path) {
            None => Ok(()),
            Some(_) => Err(refuse(format!("{key} is given twice"))),
        }
    }

    fn config_complete() -> Result<()> {
        setup().file.as_ref().map(drop).ok_or_else(|| refuse("file=PATH is missing"))
    }

    /// Open the file and the socket before nbdkit becomes a daemon, so that the user sees errors.
    fn get_ready() -> Result<()> {
        let mut setup = setup();
        let model =
            setup.model.as_deref().map_or_else(|| Ok(ModelSpec::default()), ModelSpec::read);
        let file = setup.file.as_deref().expect("nbdkit calls config_complete first");
        let volume =
            Served::open(file, &model.map_err(refuse)?, Access::Cached, sleep_interruptibly)
                .map_err(refuse)?;
        if let Some(path) = &setup.control {
            let bound = control::bind(path);
            let listener = bound.map_err(|error| refuse(format!("{}: {error}", path.display())))?;
            setup.listener = Some(listener);
        }
        SERVED.set(volume).map_err(|_| refuse("the volume is served already"))
    }

    /// Threads do not survive nbdkit's fork, so they start after it.
    fn after_fork() -> Result<()> {
        served().begin();
        let listener = setup().listener.take();
        listener.map_or(Ok(()), |listener| control::listen(listener, served()).map_err(failed))
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        // The default slack of a sleep, 50 us, would be added to every latency (prctl(2)). The
        // threads of the connection inherit the setting.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Box::new(Self))
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(served().bytes()).map_err(refuse)
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

    fn can_fua(&self) -> Result<FuaFlags> {
        Ok(FuaFlags::Native)
    }

    fn can_trim(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_zero(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fast_zero(&self) -> Result<bool> {
        Ok(true)
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let request = Request { direction: Direction::Read, offset, length: buffer.len() as u64 };
        let read = |file: &File| {
            announce(file, &request);
            file.read_exact_at(buffer, offset)
        };
        served().request(&request, read).map_err(failed)
    }

    fn write_at(&self, buffer: &[u8], offset: u64, flags: Flags) -> Result<()> {
        let request = Request { direction: Direction::Write, offset, length: buffer.len() as u64 };
        let write =
            |file: &File| file.write_all_at(buffer, offset).and_then(|()| sync(file, flags));
        served().request(&request, write).map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        served().upkeep(Upkeep::Flush, File::sync_data).map_err(failed)
    }

    fn trim(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let trim = |file: &File| match punch_hole(file, offset, count.into()) {
            // A discard is only a hint.
            Err(error) if error.raw_os_error() == Some(UNSUPPORTED) => Ok(()),
            done => done.and_then(|()| sync(file, flags)),
        };
        served().upkeep(Upkeep::Trim, trim).map_err(failed)
    }

    fn zero(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let make_zero = if flags.contains(Flags::MAY_TRIM) { punch_hole } else { zero_range };
        let zero =
            |file: &File| make_zero(file, offset, count.into()).and_then(|()| sync(file, flags));
        served().upkeep(Upkeep::Zero, zero).map_err(failed)
    }

    fn unload() {
        if let (Some(path), Some(_)) = (&setup().control, SERVED.get()) {
            let _ = std::fs::remove_file(path);
        }
    }
}

plugin!(Connection {
    after_fork,
    can_fast_zero,
    can_flush,
    can_fua,
    can_multi_conn,
    can_trim,
    can_write,
    can_zero,
    config,
    config_complete,
    config_help,
    flush,
    get_ready,
    thread_model,
    trim,
    unload,
    write_at,
    zero
});
