//! Durations of the parts of a set-up.

use std::time::Instant;

/// Do the work and add its duration to `seconds`.
pub fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = work();
    *seconds += start.elapsed().as_secs_f64();
    outcome
}
