"""An agent that measures nothing and follows a script of the test.

`scripted_agent.py SCRIPT` reads the request like the real agent. SCRIPT is a JSON file: {trial_id:
[action, action, ...]}, one for each attempt; the default is "ok". The file `calls` beside it gets a
line for every start.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

LINE = b'{"t": 1.0}\n'


def send(frame: str, body: bytes = b"", **fields: Any) -> None:
    """Write one complete frame."""
    sys.stdout.buffer.write(json.dumps({"frame": frame, **fields}).encode() + b"\n" + body)
    sys.stdout.buffer.flush()


figures: dict[str, dict[str, float]] = {}
"""Responses by trial, if the script has any."""
trace_lines: dict[str, int] = {}
"""Lines of the traces by trial, if the script has any."""


def record(
    request: dict[str, Any], trial: dict[str, Any], attempt: int, outcome: str
) -> dict[str, Any]:
    same = ("experiment", "trial_id", "treatment", "repeat", "block", "position")
    return {
        "record_version": 2,
        "run_id": request["run_id"],
        "plan_sha256": request["plan_sha256"],
        "host": request["host"],
        **{key: trial[key] for key in same},
        "attempt": attempt,
        "outcome": outcome,
        "phase": "record",
        "error": None if outcome == "ok" else outcome,
        "response": figures.get(trial["trial_id"], {}),
    }


def die(how: str, trial_id: str, attempt: int) -> None:
    """End in the middle of a trial, in the given way."""
    if how == "dies in a trace":
        sys.stdout.buffer.write(
            json.dumps(
                {
                    "frame": "trace",
                    "trial_id": trial_id,
                    "attempt": attempt,
                    "name": "sar.bin",
                    "length": 10_000,
                }
            ).encode()
            + b"\n"
            + b"x" * 5000
        )
    if how == "dies in a header":
        sys.stdout.buffer.write(b'{"frame": "record", "record": {"record_version": 1, "run')
    if how == "talks nonsense":
        sys.stdout.buffer.write(b"Welcome to this machine!\n")
    sys.stdout.buffer.flush()
    print("what I said last", file=sys.stderr, flush=True)
    os._exit(9)


def serve(request: dict[str, Any], trial: dict[str, Any], what: str) -> None:
    trial_id, attempt = trial["trial_id"], request["attempts"].get(trial["trial_id"], 1)
    send("event", event="trial", trial_id=trial_id, attempt=attempt)
    send("event", event="phase", trial_id=trial_id, phase="run")
    if what == "dies":
        die(what, trial_id, attempt)
    send("event", event="go", trial_id=trial_id)
    if what == "waits":
        wait_for_the_end_of_input()
        what = "interrupted"
    send("event", event="end", trial_id=trial_id)
    if what.startswith(("dies in", "talks")):
        die(what, trial_id, attempt)
    body = LINE * trace_lines.get(trial_id, 3)
    send("trace", body, trial_id=trial_id, attempt=attempt, name="sampler.jsonl", length=len(body))
    send("record", record=record(request, trial, attempt, what))
    if what == "interrupted":
        sys.exit(130)


def wait_for_the_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    time.sleep(0.1)


def main(script: Path) -> int:
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    try:
        request = json.loads(line)
    except ValueError:  # whoever asked has ended
        return 130
    with script.with_name("calls").open("a") as calls:
        calls.write(" ".join(trial["trial_id"] for trial in request["trials"]) + "\n")
    behaviour = json.loads(script.read_text())
    if behaviour.get("start") == "refuses":
        send(
            "event",
            event="error",
            message="another run is using this host (process 7)",
            hint="wait for it",
        )
        return 3
    if behaviour.get("start") in ("dies", "sleeps"):
        return 1 if behaviour["start"] == "dies" else 0
    figures.update(behaviour.get("figures", {}))
    trace_lines.update(behaviour.get("trace_lines", {}))
    send("facts", facts={"boot_id": "00000000-0000-4000-8000-00000000000b"})
    for trial in request["trials"]:
        whats = behaviour.get(trial["trial_id"], [])
        attempt = request["attempts"].get(trial["trial_id"], 1)
        serve(request, trial, whats[attempt - 1] if attempt <= len(whats) else "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
