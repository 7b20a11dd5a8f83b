//! Lines of JSON on stdout, each flushed at once because whoever measures acts on it.

use crate::Failure;
use serde_json::{json, Value};
use std::io::Write;

/// Prints one object on one line and flushes it.
///
/// # Errors
/// When nobody reads stdout any more.
pub fn print(object: &Value) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{object}")
        .and_then(|()| stdout.flush())
        .map_err(|cause| Failure::of("cannot write to stdout", cause))
}

/// All set-up is done; the process waits for `go`. Its set-up dropped so many bytes of its files from the page cache.
#[must_use]
pub fn ready(evicted_bytes: u64) -> Value {
    let mut line = json!({"type": "ready", "pid": std::process::id()});
    if evicted_bytes > 0 {
        line["evicted_bytes"] = json!(evicted_bytes);
    }
    line
}

/// A 64-bit sum as text: JSON readers that keep numbers as doubles would round it.
#[must_use]
pub fn checksum(sum: Option<u64>) -> Value {
    sum.map_or(Value::Null, |sum| Value::String(sum.to_string()))
}
