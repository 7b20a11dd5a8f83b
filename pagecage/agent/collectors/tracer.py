"""Processes of bpftrace, and their programs for the probes that a kernel has."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.collectors.collector import (
    Collector,
    CollectorContext,
    CollectorResult,
    Figures,
    write_rows,
)
from pagecage.agent.facts import Kernel, tool_version, tracing_obstacle
from pagecage.linux.child_processes import ToolProcesses
from pagecage.linux.procfs import read_text
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import PIPE, STDOUT, Process, find_tool

KINDS = ("fentry", "kprobe", "tracepoint")
"""Kinds of probes, the cheapest and most telling first."""
_PROBE = re.compile(r"^((?:fentry|fexit|kfunc|kretfunc|kprobe|kretprobe|tracepoint):\S+)", re.M)
_ARGS_WITH_DOT, _NAMED_FENTRY = (0, 19), (0, 20)  # bpftrace's CHANGELOG.md


@dataclass(frozen=True)
class Variant:
    """Statements that attach to kernel functions, or to tracepoints with these arguments.

    `lacks` are keys that the statements cannot fill.
    """

    text: str
    functions: tuple[str, ...] = ()
    tracepoints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of a program by kinds of probes; `table` is filled from `maps`."""

    table: str
    maps: tuple[str, ...]
    variants: Mapping[str, Variant]


@dataclass(frozen=True)
class TracerProgram:
    """A bpftrace program, the maps that a tick prints, and the keys that it cannot fill."""

    text: str
    maps: tuple[str, ...]
    unavailable: tuple[str, ...]

    @property
    def probes(self) -> list[str]:
        return list(dict.fromkeys(_PROBE.findall(self.text)))

    def to_json(self) -> dict[str, list[str]]:
        return {"probes": self.probes, "unavailable": list(self.unavailable)}

    def script(self, version: str) -> str:
        """Return the program with its tick, by default in the syntax of a recent bpftrace."""
        numbers = re.search(r"(\d+)\.(\d+)", version)
        number = tuple(map(int, numbers.groups())) if numbers else _NAMED_FENTRY
        text = self.text
        if number < _ARGS_WITH_DOT:
            text = re.sub(r"\bargs\.", "args->", text)
        if number < _NAMED_FENTRY:
            text = text.replace("fentry:", "kfunc:").replace("fexit:", "kretfunc:")
        prints = " ".join(f"print({name});" for name in self.maps)
        own = sorted(set(_MAP.findall(text)) - set(self.maps))
        clears = " ".join(f"clear({name});" for name in own)
        tick = f'interval:ms:250 {{ {prints} printf("TICK %llu\\n", nsecs); }}\n'
        return text + tick + (f"END {{ {clears} }}\n" if clears else "")


def programs(parts: Sequence[Part], kernel: Kernel) -> Iterator[TracerProgram]:
    """Yield the programs to try, the best first.

    The first assumes that the kernel has every function, because a look at its symbols takes an
    emulated CPU a second. A program without any probe is left out.
    """
    every = {name for part in parts for one in part.variants.values() for name in one.functions}
    first = _compose(parts, kernel, KINDS[0], frozenset(every))
    yield from [first] if first.maps else []
    present, tried = kernel.functions(every), {first.text}
    for kind in KINDS:
        program = _compose(parts, kernel, kind, present)
        if program.maps and program.text not in tried:
            tried.add(program.text)
            yield program


def _compose(
    parts: Sequence[Part], kernel: Kernel, kind: str, functions: frozenset[str]
) -> TracerProgram:
    text, maps, unavailable = "", list[str](), list[str]()
    for part in parts:
        kinds = [one for one in KINDS[KINDS.index(kind) :] if one in part.variants]
        found = ((one, part.variants[one]) for one in kinds)
        variant = next((v for one, v in found if _exists(one, v, kernel, functions)), None)
        if variant is None:
            unavailable.append(part.table)
            continue
        text += variant.text
        maps += [name for name in part.maps if f"{name}[" in variant.text]
        unavailable += variant.lacks
    return TracerProgram(text, tuple(maps), tuple(unavailable))


def _exists(kind: str, variant: Variant, kernel: Kernel, functions: frozenset[str]) -> bool:
    if kind == "tracepoint":
        return all(fields <= kernel.fields(name) for name, fields in variant.tracepoints.items())
    is_offered = kernel.has_btf and (kind != "kprobe" or kernel.has_kprobes)
    return is_offered and functions.issuperset(variant.functions)


TICK_SECONDS = 0.25
_ATTACH_SECONDS = 60.0
_LOST = re.compile(r"Lost (\d+) events")
_MISSED = re.compile(r"^recursion_misses:\s*(\d+)$", re.MULTILINE)
_MAP = re.compile(r"@\w+")
_ENVIRONMENT = dict.fromkeys(("BPFTRACE_MAX_MAP_KEYS", "BPFTRACE_MAP_KEYS_MAX"), "65536")
"""Requests in flight are keys. bpftrace 0.20 renamed the setting."""
_MESSAGE = re.compile(
    r"^(?P<place>\S*?:\d+(?:[:-]\d+)*): (?:ERROR|error): (?P<text>.+)$", re.MULTILINE
)
_ERROR = re.compile(r"^(?:ERROR|error): (?P<text>(?!.*RLIMIT_MEMLOCK).+)$", re.MULTILINE)
"""A limit on locked memory that cannot be raised is no error since kernel 5.11."""


@dataclass(frozen=True)
class Tick:
    """Running totals at one tick.

    `boot_ns` is the kernel's time of the tick (CLOCK_BOOTTIME); `t` (CLOCK_MONOTONIC) and `wall`,
    both in seconds, are the times at which the agent read it. bpftrace reads the maps after the
    tick has fired, so they include at least every event before `boot_ns`.
    """

    boot_ns: int
    t: float
    wall: float
    lost_events: int
    maps: dict[str, Json]


def parse_line(line: str) -> Json | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def first_error(text: str) -> str:
    if found := _MESSAGE.search(text):
        return f"{Path(found['place']).name}: {found['text'].strip()}"
    if found := _ERROR.search(text):
        return found["text"].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "bpftrace printed no reason"


class BpftraceProcess(ABC):
    """A bpftrace program that runs for the whole machine state.

    A trial takes the ticks around its measured part. `program` is the one that is attached, or
    the last one tried.
    """

    name: str
    script: str

    def __init__(self, directory: Path, children: ToolProcesses) -> None:
        self._script, self._children = directory / self.script, children
        self.program = TracerProgram("", (), ())
        self._candidates: Iterator[TracerProgram] = iter(())
        self._process: Process[bytes] | None = None
        self._maps: dict[str, Json] = {}
        self._ticks: list[Tick] = []
        self._ticked = threading.Condition()
        self._lost_events = 0
        self._text: list[str] = []
        self._output_ended = False
        self._stopped = False
        self._missed_events: int | None = None
        self.reason: str | None = None

    @abstractmethod
    def programs(self) -> Iterator[TracerProgram]: ...

    @abstractmethod
    def take(
        self, context: CollectorContext, launched: float, measured: tuple[float, float] | None
    ) -> tuple[CollectorResult, Figures]:
        """Write the trial's ticks since the launch; return the result and the figures.

        `measured` are begin and end of the measured part; all by CLOCK_MONOTONIC.
        """

    @property
    def has_begun(self) -> bool:
        return self._process is not None or self.reason is not None

    def start(self) -> None:
        self.begin()
        self.wait_until_attached()

    def begin(self) -> None:
        if not find_tool("bpftrace"):
            self.reason = "bpftrace is not installed"
            return
        self._candidates = self.programs()
        if not self._try_next():
            self.reason = _with_obstacle("the kernel has none of the probes")

    def _try_next(self) -> bool:
        program = next(self._candidates, None)
        if program is None:
            return False
        self.program, self._output_ended, self._text = program, False, []
        self._script.write_text(program.script(tool_version("bpftrace", "--version") or ""))
        argv = ["bpftrace", "-f", "json", str(self._script)]
        process = self._children.start(argv, stdout=PIPE, stderr=STDOUT, env=_ENVIRONMENT)
        self._process = process
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return True

    def wait_until_attached(self) -> None:
        """Return after the first tick. Nothing may be measured before that."""
        if self._process is None or self.reason or self._stopped:
            return
        while True:
            with self._ticked:
                # Not `_dead`: the reason may be in output that was not read from the pipe yet.
                self._ticked.wait_for(lambda: self._ticks or self._output_ended, _ATTACH_SECONDS)
                has_ticked = bool(self._ticks)
            if has_ticked:
                break
            has_ended = self._output_ended
            self._children.interrupt(self._process)
            error = first_error("\n".join(self._text)) if self._text else "it printed nothing"
            if not has_ended or not self._try_next():
                self._stopped = True
                self.reason = _with_obstacle(f"bpftrace did not attach: {error}")
                return
        self._missed_events = self._read_missed()

    def stop(self) -> None:
        if self._process and not self._stopped:
            self._stopped = True
            self._children.interrupt(self._process)

    def wait_for_tick(self, since_ns: int | None = None) -> None:
        """Return after a tick later than a time of CLOCK_BOOTTIME, by default than now."""
        if self._process is None or self.reason:
            return
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if since_ns is None else since_ns
        with self._ticked:
            self._ticked.wait_for(
                lambda: self._dead() or self._ticks[-1].boot_ns > since, 8 * TICK_SECONDS
            )

    def ticks_since(self, start: float) -> list[Tick]:
        """Return the ticks from the last before `start` (CLOCK_MONOTONIC); forget older ones."""
        with self._ticked:
            before = [tick for tick in self._ticks if tick.t <= start][-1:]
            self._ticks = before + [tick for tick in self._ticks if tick.t > start]
            return list(self._ticks)

    def keep(self, ticks: list[Tick], rows: Iterable[JsonView], path: Path) -> CollectorResult:
        """Write one row per tick as a trial's trace; return the result with the attached probes."""
        if self._process is None or self.reason:
            return CollectorResult("missing", self.reason or "bpftrace was not started")
        missed, before = self._read_missed(), self._missed_events
        self._missed_events = missed
        missed_since = None if missed is None or before is None else missed - before
        own = {**self.program.to_json(), "missed_events": missed_since}
        lost = ticks[-1].lost_events - ticks[0].lost_events if ticks else 0
        lines = (
            {"t": tick.t, "wall": tick.wall, "lost_events": tick.lost_events, **row}
            for tick, row in zip(ticks, rows, strict=True)
        )
        write_rows(path, lines)
        status, reason = ("partial", f"bpftrace lost {lost} events") if lost else ("ok", None)
        if self._dead():
            status, reason = "failed", "bpftrace died while trials ran"
        return CollectorResult(status, reason, lost, (path,), own)

    def _read_missed(self) -> int | None:
        """Return how often a probe was left out for another BPF program; None before Linux 5.12."""
        if self._process is None:
            return None
        found = list[int]()
        with suppress(OSError):
            for entry in Path(f"/proc/{self._process.pid}/fdinfo").iterdir():
                missed = _MISSED.search(read_text(entry) or "")
                found += [int(missed[1])] if missed else []
        return sum(found) if found else None

    def _dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _read(self, process: Process[bytes]) -> None:
        assert process.stdout is not None
        for raw in open(process.stdout.fileno(), "rb", closefd=False):  # noqa: SIM115 - buffered view of it
            self._take(raw.decode(errors="replace").strip())
        # before the notification, so that `_dead` is true for the waiting threads
        process.wait()
        with self._ticked:
            self._output_ended = True
            self._ticked.notify_all()

    def _take(self, line: str) -> None:
        data = parse_line(line)
        if data is None:
            lost = _LOST.search(line)
            self._lost_events += int(lost.group(1)) if lost else 0
            self._text += [line] if line else []
        elif data.get("type") in ("map", "hist"):
            for name, rows in data["data"].items():  # an empty map is printed as {}
                self._maps[name] = dict(rows) if isinstance(rows, dict) else {}
        elif data.get("type") == "lost_events":
            self._lost_events += int(data["data"]["events"])
        elif data.get("type") == "printf" and str(data["data"]).startswith("TICK "):
            with self._ticked:
                boot_ns, now = int(data["data"].split()[1]), (time.monotonic(), time.time())
                self._ticks.append(Tick(boot_ns, *now, self._lost_events, dict(self._maps)))
                self._ticked.notify_all()


def _with_obstacle(reason: str) -> str:
    obstacle = tracing_obstacle(Kernel().abilities(), os.getuid())
    return f"{reason} ({obstacle[0]})" if obstacle else reason


class TracedTrial(Collector):
    """A session's tracer as the collector of one trial."""

    def __init__(self, tracer: BpftraceProcess, context: CollectorContext) -> None:
        self.name, self._tracer, self._context = tracer.name, tracer, context

    def start(self) -> None:
        """Do nothing: the tracer was attached before."""

    def stop(self) -> CollectorResult:
        return CollectorResult("missing", "the program was not started")

    def end(
        self, launched: float | None, measured: tuple[float, float] | None
    ) -> tuple[CollectorResult | None, Figures]:
        """Take the trial's ticks; a trial whose program was never launched has no entry."""
        if launched is None:
            return None, {}
        return self._tracer.take(self._context, launched, measured)
