"""An agent that measures nothing and sends what a trial of nothing sent: `echoing_agent.py FRAMES`.

FRAMES has the frames of one real trial. Each requested trial gets them with its own identity, so
the controller works as for a real run.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

SAME = ("experiment", "trial_id", "treatment", "repeat", "block", "position")


def frames_of(data: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Return the frames of one trial, with the bytes that follow each."""
    found, stream = [], io.BytesIO(data)
    while line := stream.readline():
        header = json.loads(line)
        found.append((header, stream.read(header.get("length", 0))))
    return found


def own(header: dict[str, Any], request: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    """Return a frame's header with the identity of this trial."""
    attempt = request["attempts"].get(trial["trial_id"], 1)
    if header["frame"] != "record":
        named = {"trial_id": trial["trial_id"], "attempt": attempt}
        return header | {key: value for key, value in named.items() if key in header}
    identity = {key: trial[key] for key in SAME}
    run = {key: request[key] for key in ("run_id", "plan_sha256", "host")}
    record = {**header["record"], **identity, **run, "attempt": attempt}
    record.pop("record_sha256", None)
    return {"frame": "record", "record": record}


def main(path: str) -> int:
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        request = json.loads(stdin.readline())
    frames, out = frames_of(Path(path).read_bytes()), sys.stdout.buffer
    out.write(b'{"frame":"facts","facts":{"boot_id":"00000000-0000-4000-8000-00000000000b"}}\n')
    for trial in request["trials"]:
        for header, body in frames:
            out.write(json.dumps(own(header, request, trial)).encode() + b"\n" + body)
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
