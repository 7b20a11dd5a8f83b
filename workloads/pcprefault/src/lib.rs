//! Loads a file ahead of its use, then uses every byte of it, and times the two apart.
//!
//! A mapping is made at once and read only when it is touched. Whoever knows that all of it will be wanted can have it
//! read beforehand: by asking the kernel, by touching every page, or by giving up the mapping for an ordinary read.

pub mod arguments;
mod calculation;
mod gate;
mod member;
mod memory;
mod method;
mod parts;
mod probe;
mod report;
mod run;
mod shift;
mod stall;
mod together;

pub use run::measure;
pub use together::measure_together;
