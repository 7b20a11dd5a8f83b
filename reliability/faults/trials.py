"""Scenario `trial`: the real agent runs a trial on the fake machine, with all of its parts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagecage.agent.main import main as agent_main
from pagecage.agent.protocol import request_to_json
from pagecage.model.record import Record, read_records, record_to_json
from reliability.faults.scenario import Scenario, own_role, tell
from reliability.faults.supervisor import Limits
from tests.fake_host.machine import LIGHT, Machine, make_request, make_trial

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_TIMED = re.compile("second|share|latency|p99|ahead")
_PIPE: list[int] = []


def prepare(root: Path) -> None:
    Machine(root).make()
    (root / "tmp").mkdir()


def ask(root: Path) -> None:
    """Write the request to a pipe whose writing end stays open, as the controller does."""
    for descriptor in _PIPE:
        os.close(descriptor)
    reading, writing = os.pipe()
    _PIPE[:] = reading, writing
    request = request_to_json(make_request(Machine(root), make_trial(cage=LIGHT)))
    os.write(writing, json.dumps(request).encode() + b"\n")


def start(root: Path) -> int:
    """Run the agent on the request; its frames go to a file."""
    machine = Machine(root)
    os.environ["PATH"] = _PATH
    os.environ |= machine.environment() | {"TMPDIR": str(root / "tmp")}
    machine.stand_in(setattr)
    return tell(root, lambda: _agent(root))


def _agent(root: Path) -> int:
    os.dup2(_PIPE[0], 0)
    frames = os.open(root / "frames", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(frames, 1)
    return agent_main(["run"])


def result(root: Path) -> dict[str, Any]:
    """Return what the last record says, without times."""
    return _projected(list(read_records(Machine(root).records))[-1])


def _projected(record: Record) -> dict[str, Any]:
    data = record_to_json(record)
    return {
        **{key: data[key] for key in ("outcome", "phase")},
        "response": {k: v for k, v in data["response"].items() if not _TIMED.search(k)},
        "limits": [data["cage"].get("expected"), data["cage"].get("read_back")],
        "cache": data["cache"].get("asked"),
        "queue": data["device"].get("queue_settings"),
        "counters": sorted(data["counters"]),
    }


def acknowledged(root: Path) -> list[str]:
    """Return the lines of complete records on the host."""
    records = read_records(Machine(root).records)
    return [json.dumps(record_to_json(record), sort_keys=True) for record in records]


def wrong(root: Path, before: list[str], expected: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong: a lost record, a wrong one, or anything left on the machine."""
    if (now := acknowledged(root))[: len(before)] != list(before):
        yield "a record was lost or changed"
    if len(now) <= len(before):
        yield "no record was made"
    yield from wrong_records(root, expected)
    records = list(read_records(Machine(root).records))
    yield from (f"left on the host: {Path(path).name}" for path in Machine(root).left())
    if records and records[-1].outcome != "ok":
        yield f"the next start's record says {records[-1].outcome}: {records[-1].error}"


def wrong_records(root: Path, expected: dict[str, Any]) -> Iterator[str]:
    """Yield which records say ok and are wrong.

    After a fault a record may say that it failed, or `error` what could not be cleaned up.
    """
    for record in read_records(Machine(root).records):
        if record.outcome == "ok" and (found := _projected(record)) != expected:
            yield f"a record that says ok differs in {list(_differing(expected, found))}"


def _differing(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for key in expected.keys() | found.keys():
        one, other = expected.get(key), found.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from (f"{key}.{name}" for name in _differing(one, other))
        elif one != other:
            yield f"{key}: {one!r} became {other!r}"


def role(pid: int) -> str | None:
    return own_role(pid)


TRIAL = Scenario(
    *("trial", prepare, start, start, result, acknowledged, wrong, role),
    extra_files=(r"spool/.*\.log", r"tmp/[a-z0-9_N]+"),
    is_copied=False,
    before=ask,
    wrong_at_once=wrong_records,
    limits=Limits(lingering_seconds=2.0),
)
