//! Requests to the volume, and their outcome.

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the volume.
    Read,
    /// To the volume.
    Write,
}

/// A request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its direction.
    pub direction: Direction,
    /// Its first byte on the volume.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It completes successfully at this time.
    Completes {
        /// Time of the reply, in nanoseconds of the volume's clock.
        at_ns: u64,
    },
    /// It fails with EIO at this time.
    Fails {
        /// Time of the reply, in nanoseconds of the volume's clock.
        at_ns: u64,
    },
}
