//! The volume as the one file of a FUSE mount, which loop(4) makes a block device of.
//!
//! The root of the mount is the file itself, so there is nothing to look up. Each thread takes one
//! request at a time from a queue of its own (fuse(4), `FUSE_DEV_IOC_CLONE`), and sleeps until its
//! reply is due. There are as many threads as loop(4) keeps requests in flight.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Error, IoSlice, IoSliceMut, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;

use memmap2::MmapMut;
use rustix::io::Errno;
use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};
use rustix::process::configure_io_flusher_behavior;

use crate::account::Upkeep;
use crate::control;
use crate::fuse_abi::{self as abi, Message, Opcode};
use crate::request::{Direction, Request};
use crate::served::{punch_hole, zero_range, Access, Served};
use crate::spec::ModelSpec;

/// The requests that loop(4) keeps in flight (`hw_queue_depth`).
const THREADS: usize = 128;
const DEVICE: &str = "/dev/fuse";
const USAGE: &str = "there are file=PATH, at=FILE, control=SOCKET and model=FILE";

/// The parameters of the program.
#[derive(Default)]
struct Parameters {
    file: Option<PathBuf>,
    at: Option<PathBuf>,
    control: Option<PathBuf>,
    model: Option<PathBuf>,
}

/// Serve a volume until its file is unmounted.
///
/// # Errors
///
/// Fails with a sentence if a parameter is wrong, or if the file cannot be served.
pub fn run(words: impl Iterator<Item = OsString>) -> std::result::Result<(), String> {
    let parameters = Parameters::parse(words)?;
    let file = parameters.file.ok_or("file=PATH is missing")?;
    let at = parameters.at.ok_or("at=FILE is missing")?;
    let model =
        parameters.model.as_deref().map_or_else(|| Ok(ModelSpec::default()), ModelSpec::read);
    let model = model.map_err(|error| error.to_string())?;
    let served = Served::open(&file, &model, Access::Direct, nap)?;
    // The control socket, commands and threads live as long as the process.
    let served: &'static Served = Box::leak(Box::new(served));
    // The default slack of a sleep, 50 us, would be added to every latency (prctl(2)). Threads
    // inherit it, and the promise to need no memory that is freed by writing to this volume.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let _ = configure_io_flusher_behavior(true);
    run_at_once();
    let device = mount_at(&at)?;
    let listening = parameters.control.as_deref().map_or(Ok(()), |path| listen(path, served));
    let outcome =
        listening.and_then(|()| serve(&device, served).map_err(|error| error.to_string()));
    let _ = unmount(&at, UnmountFlags::DETACH);
    if let (Some(path), Ok(())) = (&parameters.control, &outcome) {
        let _ = std::fs::remove_file(path);
    }
    outcome
}

impl Parameters {
    fn parse(words: impl Iterator<Item = OsString>) -> std::result::Result<Self, String> {
        let mut found = Self::default();
        for word in words {
            let word = word.into_string().map_err(|_| "a parameter is not UTF-8")?;
            let (key, value) = word.split_once('=').unwrap_or((&word, ""));
            let parameter = match key {
                "file" => &mut found.file,
                "at" => &mut found.at,
                "control" => &mut found.control,
                "model" => &mut found.model,
                _ => return Err(format!("there is no parameter {key}; {USAGE}")),
            };
            if parameter.replace(PathBuf::from(value)).is_some() {
                return Err(format!("{key} is given twice"));
            }
        }
        Ok(found)
    }
}

/// Let threads run as soon as a request arrives or a reply is due, whatever else wants the CPU: a
/// real volume is not slowed down by its user's programs. It stays as it is without the right.
fn run_at_once() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: it reads the structure, and concerns this thread and those that it will start.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const priority) };
}

#[allow(clippy::unnecessary_wraps)] // a Nap; the end of the process interrupts it
fn nap(duration_ns: u64) -> Result<()> {
    std::thread::sleep(Duration::from_nanos(duration_ns));
    Ok(())
}

fn listen(path: &Path, served: &'static Served) -> std::result::Result<(), String> {
    let listening = control::bind(path).and_then(|listener| control::listen(listener, served));
    listening.map_err(|error| format!("{}: {error}", path.display()))
}

/// Mount the file of the volume over an empty file.
fn mount_at(path: &Path) -> std::result::Result<File, String> {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = opened.map_err(|error| format!("{DEVICE}: {error}"))?;
    let (number, longest) = (device.as_raw_fd(), abi::MOST_DATA_BYTES);
    let data = format!("fd={number},rootmode=100000,user_id=0,group_id=0,max_read={longest}");
    let data = CString::new(data).expect("it has no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("pcvolume", path, "fuse", flags, data.as_c_str())
        .map_err(|error| format!("{}: cannot be mounted: {error}", path.display()))?;
    Ok(device)
}

/// Answer requests in many threads until the file is unmounted.
fn serve(device: &File, served: &'static Served) -> Result<()> {
    served.begin();
    let mut threads = Vec::with_capacity(THREADS);
    for _ in 0..THREADS {
        let mut thread = Thread::new(abi::clone_device(device)?, served)?;
        let builder = Builder::new().name("volume".into()).stack_size(128 << 10);
        threads.push(builder.spawn(move || thread.answer_all())?);
    }
    threads.into_iter().try_for_each(|thread| thread.join().expect("a panic aborts"))
}

/// A thread with its queue, and with room for one request. Direct I/O needs aligned data, so the
/// data of a write are read into pages of their own.
struct Thread {
    device: File,
    served: &'static Served,
    head: [u8; abi::HEAD_BYTES],
    data: MmapMut,
}

impl Thread {
    fn new(device: File, served: &'static Served) -> Result<Self> {
        let data = MmapMut::map_anon(abi::MOST_DATA_BYTES)?;
        Ok(Self { device, served, head: [0; abi::HEAD_BYTES], data })
    }

    fn answer_all(&mut self) -> Result<()> {
        loop {
            let mut parts = [IoSliceMut::new(&mut self.head), IoSliceMut::new(&mut self.data)];
            let length = match (&self.device).read_vectored(&mut parts) {
                Ok(length) => length,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NODEV) => return Ok(()),
                    // The request was interrupted before it was read.
                    Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                    _ => return Err(error),
                },
            };
            let message = Message::new(self.head, length);
            match self.answer(&message) {
                Ok(Answer::Nothing) => {}
                Ok(Answer::Done) => self.reply(&message, 0, &[])?,
                Ok(Answer::Bytes(bytes)) => self.reply(&message, 0, &bytes)?,
                Ok(Answer::Data(length)) => self.reply(&message, 0, &self.data[..length])?,
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                    self.reply(&message, -number, &[])?;
                }
            }
        }
    }

    fn answer(&mut self, message: &Message) -> Result<Answer> {
        match message.opcode() {
            Opcode::Init => Ok(Answer::Bytes(abi::init_reply(message)?)),
            Opcode::GetAttr => Ok(Answer::Bytes(abi::attr_reply(self.served.bytes()))),
            Opcode::Open => Ok(Answer::Bytes(abi::open_reply())),
            Opcode::StatFs => Ok(Answer::Bytes(abi::statfs_reply())),
            Opcode::Read => self.read(message),
            Opcode::Write => self.write(message),
            Opcode::Fsync => self.upkeep(Upkeep::Flush, File::sync_data),
            Opcode::Allocate => self.allocate(message),
            Opcode::Release | Opcode::Flush => Ok(Answer::Done),
            Opcode::Forget => Ok(Answer::Nothing),
            Opcode::Other => Err(Errno::NOSYS.into()),
        }
    }

    fn read(&mut self, message: &Message) -> Result<Answer> {
        let (offset, length) = message.range();
        let buffer = self.data.get_mut(..length).ok_or(Errno::INVAL)?;
        let request = Request { direction: Direction::Read, offset, length: length as u64 };
        self.served.request(&request, |file| file.read_exact_at(buffer, offset))?;
        Ok(Answer::Data(length))
    }

    fn write(&mut self, message: &Message) -> Result<Answer> {
        let (offset, length) = message.range();
        let data = self.data.get(..length).ok_or(Errno::INVAL)?;
        let request = Request { direction: Direction::Write, offset, length: length as u64 };
        self.served.request(&request, |file| file.write_all_at(data, offset))?;
        Ok(Answer::Bytes(abi::write_reply(length)))
    }

    /// Discard or zero a range (fallocate(2)), as loop(4) asks for both.
    fn allocate(&self, message: &Message) -> Result<Answer> {
        let (offset, length, mode) = message.allocation();
        match mode {
            abi::PUNCH_HOLE => self.upkeep(Upkeep::Trim, |file| punch_hole(file, offset, length)),
            abi::ZERO_RANGE => self.upkeep(Upkeep::Zero, |file| zero_range(file, offset, length)),
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }

    fn upkeep(&self, upkeep: Upkeep, act: impl FnOnce(&File) -> Result<()>) -> Result<Answer> {
        self.served.upkeep(upkeep, act)?;
        Ok(Answer::Done)
    }

    fn reply(&self, message: &Message, error: i32, bytes: &[u8]) -> Result<()> {
        let head = abi::reply_head(message, error, bytes.len());
        let written = (&self.device).write_vectored(&[IoSlice::new(&head), IoSlice::new(bytes)]);
        match written {
            // The client has gone: the request was aborted, or the file is unmounted.
            Err(error) if is_gone(&error) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

/// The answer to a request.
enum Answer {
    /// None is expected.
    Nothing,
    /// It succeeded.
    Done,
    /// A structure.
    Bytes(Vec<u8>),
    /// A number of bytes of the thread's data.
    Data(usize),
}
