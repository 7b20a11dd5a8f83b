//! Commands to a volume that is being served, over a unix socket.
//!
//! Each line is a JSON object with one key, and is answered by one line. README.md lists them.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::event::Event;
use crate::served::Served;
use crate::spec::ModelSpec;

/// The longest command.
const MOST_LINE_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    Configure(Box<ModelSpec>),
    InForce(Yes),
    Account(Yes),
    Event(Event),
}

/// The value `true`, which is all that a question may have.
#[derive(Deserialize)]
#[serde(try_from = "bool")]
struct Yes;

impl TryFrom<bool> for Yes {
    type Error = &'static str;

    fn try_from(value: bool) -> std::result::Result<Self, Self::Error> {
        value.then_some(Self).ok_or("the only value is true")
    }
}

/// Bind the socket, in place of one that a killed server left behind.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket && is_refused(UnixStream::connect(path)) {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

fn is_refused(connected: Result<UnixStream>) -> bool {
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Answer commands in threads of their own, one per client.
pub(crate) fn listen(listener: UnixListener, served: &'static Served) -> Result<()> {
    Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            let answering = stream.and_then(|stream| {
                // A client that has gone away needs no answer.
                Builder::new()
                    .name("client".into())
                    .spawn(move || drop(answer_all(&stream, served)))
            });
            if answering.is_err() {
                // Too many files or threads: others may end.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })?;
    Ok(())
}

fn answer_all(stream: &UnixStream, served: &Served) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        if line.len() as u64 == MOST_LINE_BYTES {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(command) => answer(command, served).unwrap_or_else(|error| refusal(&error)),
            Err(error) => refusal(&error.to_string()),
        };
        (&*stream).write_all(format!("{answer}\n").as_bytes())?;
        line.clear();
    }
    Ok(())
}

fn refusal(error: &str) -> Value {
    json!({"error": error})
}

fn answer(command: Command, served: &Served) -> std::result::Result<Value, String> {
    match command {
        Command::Configure(model) => {
            let in_force = served.configure(&model).map_err(|error| error.to_string())?;
            Ok(json!({"in_force": in_force}))
        }
        Command::InForce(Yes) => Ok(json!({"in_force": served.describe()})),
        Command::Account(Yes) => Ok(served.account().to_json()),
        Command::Event(event) => {
            served.add_event(event).map_err(|error| error.to_string())?;
            Ok(json!({"added": true}))
        }
    }
}
