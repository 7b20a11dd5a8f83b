//! Commands to a volume that is being served, over a socket.
//!
//! Each line is a JSON object. `{"account": true}` is answered with the account. An event is added
//! as `{"event": {...}}`; its times count from the command. Every answer is a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::event::Event;
use crate::plugin::Served;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    Account(bool),
    Event(Event),
}

/// Answer commands in a thread of its own.
pub(crate) fn listen(path: &Path, served: &'static Served) -> std::io::Result<()> {
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone away needs no answer.
            let _ = answer_all(&stream, served);
        }
    })?;
    Ok(())
}

fn answer_all(stream: &UnixStream, served: &Served) -> std::io::Result<()> {
    for line in BufReader::new(stream).lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(command) => answer(command, served),
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(&*stream, "{answer}")?;
    }
    Ok(())
}

fn answer(command: Command, served: &Served) -> Value {
    served.with_volume(|volume, now_ns| match command {
        Command::Account(_) => volume.account(now_ns),
        Command::Event(event) => {
            volume.add_event(event.later_by(now_ns as f64 / 1e9));
            json!({"added": true})
        }
    })
}
