//! Requests to the volume, and the decision about each.

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

/// The time of a reply that the volume never sends.
pub const NEVER_NS: u64 = u64::MAX;

/// The decision about a request, made when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When it arrived, in nanoseconds of the volume's clock.
    pub arrived_ns: u64,
    /// When the reply is due, in nanoseconds of the volume's clock; [`NEVER_NS`] in an endless
    /// pause.
    pub at_ns: u64,
    /// Whether the reply is EIO.
    pub fails: bool,
}
