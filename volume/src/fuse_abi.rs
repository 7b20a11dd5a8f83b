//! The messages of FUSE that a single file needs (linux/fuse.h, protocol 7.31 and later).

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Setter};

/// The head of a message, and the arguments of a read or a write: data begin behind them.
pub(crate) const HEAD_BYTES: usize = IN_HEADER_BYTES + 40;
/// The longest read or write: 256 pages, the kernel's own limit (`fs.fuse.max_pages_limit`).
pub(crate) const MOST_DATA_BYTES: usize = 1 << 20;
/// `FALLOC_FL_KEEP_SIZE` with `FALLOC_FL_PUNCH_HOLE`.
pub(crate) const PUNCH_HOLE: u32 = 1 | 2;
/// `FALLOC_FL_KEEP_SIZE` with `FALLOC_FL_ZERO_RANGE`.
pub(crate) const ZERO_RANGE: u32 = 1 | 16;

const IN_HEADER_BYTES: usize = 40;
const MOST_PAGES: u16 = 256;
const MINOR: u32 = 31;
/// Asynchronous reads, large writes, parallel and asynchronous direct I/O, a number of pages.
const WANTED: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 18 | 1 << 22;
const PAGES_FLAG: u32 = 1 << 22;
/// Requests in the background: loop(4) has as many in flight.
const BACKGROUND: u16 = 256;
/// `FOPEN_DIRECT_IO`, `FOPEN_NOFLUSH`, `FOPEN_PARALLEL_DIRECT_WRITES`.
const OPEN_FLAGS: u32 = 1 | 1 << 5 | 1 << 6;
const YEAR_SECONDS: u64 = 31_536_000;
const BLOCK_BYTES: u64 = 512;
const REGULAR_FILE: u32 = 0o100_600;

/// The operation that a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Forget,
    GetAttr,
    Open,
    Read,
    Write,
    StatFs,
    Release,
    Fsync,
    Flush,
    Init,
    Allocate,
    Other,
}

/// A message without the data of a write.
pub(crate) struct Message {
    head: [u8; HEAD_BYTES],
    length: usize,
}

impl Message {
    pub(crate) fn new(head: [u8; HEAD_BYTES], length: usize) -> Self {
        Self { head, length }
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self.word(4) {
            2 | 42 => Opcode::Forget, // also of several files
            3 => Opcode::GetAttr,
            14 => Opcode::Open,
            15 => Opcode::Read,
            16 => Opcode::Write,
            17 => Opcode::StatFs,
            18 => Opcode::Release,
            20 => Opcode::Fsync,
            25 => Opcode::Flush,
            26 => Opcode::Init,
            43 => Opcode::Allocate,
            _ => Opcode::Other,
        }
    }

    /// Return the first byte and the length of a read or a write.
    pub(crate) fn range(&self) -> (u64, usize) {
        (self.long(IN_HEADER_BYTES + 8), self.word(IN_HEADER_BYTES + 16) as usize)
    }

    /// Return the first byte, the length and the mode of an allocation (fallocate(2)).
    pub(crate) fn allocation(&self) -> (u64, u64, u32) {
        let argument = |place| self.long(IN_HEADER_BYTES + place);
        (argument(8), argument(16), self.word(IN_HEADER_BYTES + 24))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.head[at..at + 4].try_into().expect("four bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.head[at..at + 8].try_into().expect("eight bytes"))
    }
}

/// Open another queue of a mounted device.
pub(crate) fn clone_device(device: &File) -> Result<File> {
    const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);
    let clone = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let number = u32::try_from(device.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: the request takes a pointer to the number of an open device (linux/fuse.h).
    unsafe { ioctl(&clone, Setter::<CLONE, u32>::new(number))? };
    Ok(clone)
}

/// Return the head of a reply. `error` is 0 or a negative error number.
pub(crate) fn reply_head(message: &Message, error: i32, length: usize) -> [u8; 16] {
    let mut head = [0; 16];
    #[allow(clippy::cast_possible_truncation)] // at most 1 MiB
    head[..4].copy_from_slice(&(16 + length as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..].copy_from_slice(&message.head[8..16]);
    head
}

/// Agree on the protocol. Fails with a kernel older than Linux 5.4.
pub(crate) fn init_reply(message: &Message) -> Result<Vec<u8>> {
    let argument = |place: usize| message.word(IN_HEADER_BYTES + 4 * place);
    let (major, minor, read_ahead, offered) = (argument(0), argument(1), argument(2), argument(3));
    if message.length < IN_HEADER_BYTES + 16
        || (major, offered & PAGES_FLAG) != (7, PAGES_FLAG)
        || minor < MINOR
    {
        return Err(Errno::PROTO.into());
    }
    let mut reply = Fields::default();
    reply.words(&[7, MINOR, read_ahead, offered & WANTED]);
    reply.shorts(&[BACKGROUND, BACKGROUND]);
    reply.words(&[1 << 20, 1]);
    reply.shorts(&[MOST_PAGES, 0]);
    Ok(reply.padded(64))
}

/// Return the attributes of the file, which never change.
pub(crate) fn attr_reply(length: u64) -> Vec<u8> {
    let mut reply = Fields::default();
    reply.longs(&[YEAR_SECONDS, 0]);
    reply.longs(&[1, length, length / BLOCK_BYTES, 0, 0, 0]);
    reply.words(&[0, 0, 0, REGULAR_FILE, 1, 0, 0, 0, 4096, 0]);
    reply.padded(104)
}

/// Return the handle of the file.
pub(crate) fn open_reply() -> Vec<u8> {
    let mut reply = Fields::default();
    reply.longs(&[0]);
    reply.words(&[OPEN_FLAGS]);
    reply.padded(16)
}

/// Return the length that was written.
pub(crate) fn write_reply(length: usize) -> Vec<u8> {
    let mut reply = Fields::default();
    #[allow(clippy::cast_possible_truncation)] // at most 1 MiB
    reply.words(&[length as u32]);
    reply.padded(8)
}

/// Return the state of the file system: nothing is known or free.
pub(crate) fn statfs_reply() -> Vec<u8> {
    Fields::default().padded(80)
}

/// Numbers one after another, in the order of this machine's bytes.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn shorts(&mut self, values: &[u16]) {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    }

    fn words(&mut self, values: &[u32]) {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    }

    fn longs(&mut self, values: &[u64]) {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
    }

    fn padded(mut self, length: usize) -> Vec<u8> {
        self.0.resize(length, 0);
        self.0
    }
}
