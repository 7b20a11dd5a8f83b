"""One trial of the real agent on the simulated host, with a lie planted in it."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pagecage.agent.collectors import sampler
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.facts import tool_version
from pagecage.agent.host_session import HostSession
from pagecage.agent.protocol import FrameStream
from pagecage.agent.session import run_trial
from pagecage.linux import procfs
from pagecage.model.cage import Cage
from pagecage.model.record import Record, read_records, with_outer_host
from pagecage.model.trial import Dataset, Trial
from pagecage.verdicts.evaluate import DATA_POINTS, Verdicts, evaluate
from reliability.mutants.kernel import IN_AGENT, OTHER_MAJ_MIN, Kernel, Place
from reliability.mutants.lies import SURVIVED, Mutant
from tests.fake_host.machine import Machine, frames_of, make_dataset, make_session, make_trial
from tests.tree import ROOT

Set = Callable[[Any, str, Any], None]
Row = dict[str, Any]
STEP_SECONDS, SHIFT_SECONDS = 3600.0, 0.25
_SLOW = 0.5


class Instruments:
    """The instruments of one simulated trial, with a lie that begins at a moment.

    `outer_seconds` is time that passed on the outer host alone.
    """

    def __init__(self, root: Path, set_: Set, name: str, moment: str) -> None:
        self._root, self._set, self._name, self._moment = root, set_, name, moment
        self._is_lying, self._kept = False, Row()
        self.outer_seconds = 0.0
        self._time, self._monotonic, self._sample = time.time, time.monotonic, Sampler._sample

    def make(self) -> None:
        """Let samples stand still while the machine does, and install what lies from the start."""
        this = self

        def sample(one: Sampler) -> Row:
            while (this._root / "paused").exists():
                time.sleep(0.02)
            return this._lied(this._sample(one))

        self._set(Sampler, "_sample", sample)
        if self._name == "samples of another disk":
            made = Sampler.__init__

            def on_another(one: Sampler, context: Any) -> None:
                made(one, context)
                one._maj_min = OTHER_MAJ_MIN

            self._set(Sampler, "__init__", on_another)

    def at(self, moment: str) -> None:
        """Begin to lie at the moment; `middle` is a quarter of a second after `go`."""
        if moment == "go" and self._moment == "middle":
            self._moment_seconds = self._monotonic() + SHIFT_SECONDS
        if moment != self._moment:
            return
        self._is_lying = True
        begin = self._monotonic()
        if self._name == "wall clock steps":
            self._set(time, "time", lambda: self._time() + STEP_SECONDS)
        if self._name == "monotonic clock is slow":
            self._set(time, "monotonic", lambda: begin + _SLOW * (self._monotonic() - begin))
        if self._name == "guest stopped with its clock":
            self.outer_seconds = 2.0

    def _lied(self, row: Row) -> Row:
        due = getattr(self, "_moment_seconds", None)
        if due is not None and self._monotonic() >= due and not self._is_lying:
            self._moment = "now"
            self.at("now")
        if not self._is_lying:
            self._kept = row
            return row
        match self._name:
            case "sampler stops":
                raise SystemExit
            case "sampler freezes":
                return {**self._kept, "t": row["t"], "wall": row["wall"]}
            case "sampler repeats":
                return dict(self._kept)
            case "sampler's clock is shifted":
                return {**row, "t": row["t"] + 1.0}
            case "sampler counts half":
                halved = {key: value // 2 for key, value in row["io"].items()}
                return {**row, "io": halved}
        return row


def write_sum(file: Path) -> None:
    file.with_name(f"{file.name}.crc").write_text(str(zlib.crc32(file.read_bytes())))


def spoil_data(name: str, file: Path) -> None:
    """Replace the content of a dataset; with `, new checksum` also what it is compared with."""
    name, _, is_resummed = name.partition(", ")
    size = file.stat().st_size
    contents: Mapping[str, Callable[[], bytes]] = {
        "sparse": lambda: b"",
        "compressible": lambda: b"0123456789abcdef" * (size // 16),
        "duplicate": lambda: file.read_bytes()[:4096] * (size // 4096),
        "zeros": lambda: bytes(size),
    }
    content = contents[name]()
    file.write_bytes(content)
    if not content:
        with file.open("r+b") as opened:
            opened.truncate(size)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    if is_resummed:
        write_sum(file)


def instruments_file(root: Path, plant: str, moment: str, conduct: Mapping[str, Any]) -> None:
    text = {"plant": plant, "moment": moment, "conduct": dict(conduct)}
    (root / "lie.json").write_text(json.dumps(text))


DATASET = Dataset(12 * 1024**2)
CAGE = Cage("tight", {"MemoryMax": 8 * 1024**2, "IOReadBandwidthMax": 20_000_000})
_CALIBRATION = {"method": "simulated", "seconds": 2.0, "held": True, "error": None}
CALIBRATED = {
    name: {**_CALIBRATION, "allowed": 1.05 * cap, "observed": float(cap)}
    for name, cap in CAGE.properties.items()
}
BOTH = 2
"""Limits of the cage that an honest trial proves."""


@dataclass(frozen=True)
class Simulated:
    """The record and the sampler's rows of a simulated trial."""

    record: Record
    rows: tuple[dict[str, Any], ...]

    @property
    def verdicts(self) -> Verdicts:
        return evaluate(self.record, self.rows)


def caught_by(found: Simulated) -> str:
    """Return the verdict that keeps a trial from counting as proven, or SURVIVED."""
    return verdict_of(found.record, found.verdicts)


def verdict_of(record: Record, verdicts: Verdicts) -> str:
    if record.outcome not in DATA_POINTS:
        return f"outcome: {record.outcome}"
    named = {
        "cache_state": verdicts.cache_state_reached.verdict,
        "host_quiet": verdicts.host_quiet.verdict,
        "consistency": verdicts.consistency.verdict,
        "emulated": verdicts.emulated.verdict,
    }
    words = [limit.verdict for limit in verdicts.limits if limit.cap is not None]
    if "leaky" in words:
        return "limits: leaky"
    for name, good in (
        ("cache_state", ("reached", "not_applicable")),
        ("host_quiet", ("quiet",)),
        ("consistency", ("consistent",)),
        ("emulated", ("no",)),
    ):
        if named[name] not in good:
            return f"{name}: {named[name]}"
    if any(reason.startswith("output differs") for reason in verdicts.reasons):
        return "output: differs"
    return SURVIVED if words == ["enforced"] * BOTH else "limits: never_reached"


class _Stream(io.BytesIO):
    """The agent's frames, with a callback at each event."""

    def __init__(self, at: Any) -> None:
        super().__init__()
        self._at = at

    def write(self, data: Any) -> int:
        text = bytes(data)
        if text.startswith(b'{"frame":"event"') or b'"frame": "event"' in text[:60]:
            event = json.loads(text.splitlines()[0])
            if event["event"] in ("go", "end", "phase"):
                self._at(event.get("phase", event["event"]))
        return super().write(data)


class Simulation:
    """A simulated host with one lie."""

    def __init__(self, root: Path, mutant: Mutant, set_: Any) -> None:
        self.machine, self.mutant = Machine(root), mutant
        self.kernel = Kernel(root)
        self.instruments = Instruments(root, set_, mutant.lie.plant, mutant.moment)
        self.outer: dict[str, Any] = {}
        self._set = set_

    def make(self) -> None:
        machine, lie = self.machine, self.mutant.lie
        machine.make()
        self.kernel.make()
        programs = machine.root / "programs"
        programs.mkdir()
        shutil.copy(Path(__file__).with_name("workload.py"), programs / "pcread")
        for name, value in {
            **machine.environment(),
            "FAKE_TESTS": str(ROOT),
            **{key: text.format(root=machine.root) for key, text in lie.environment.items()},
        }.items():
            os.environ[name] = value
        machine.stand_in(self._set)
        tool_version.cache_clear()
        self._fake_proc()
        self.instruments.make()
        self.file = make_dataset(machine.data, DATASET)
        write_sum(self.file)
        instruments_file(machine.root, lie.plant, self.mutant.moment, lie.conduct)

    def _fake_proc(self) -> None:
        proc, vmstat, host = self.kernel.proc, procfs.read_vmstat, procfs.read_host
        self._set(procfs, "read_device", partial(procfs.read_device, proc=proc))
        self._set(procfs, "read_vmstat", lambda *_: vmstat(proc))
        self._set(procfs, "read_host", lambda *_: host(proc))
        opened = procfs.open_text

        def open_text(path: Path) -> int | None:
            return opened(self.kernel.proc / "diskstats" if "diskstats" in str(path) else path)

        self._set(sampler, "open_text", open_text)

    def at(self, moment: str) -> None:
        """Do what is planted at a moment of the agent."""
        lie = self.mutant.lie
        place = Place(self.machine.root, self.file, self.kernel, self.mutant.moment)
        if moment in ("go", "end"):
            passed = self.instruments.outer_seconds if moment == "end" else 0.0
            self.outer["before" if moment == "go" else "after"] = {
                "unix_seconds": time.clock_gettime(time.CLOCK_REALTIME) + passed,
                "cpu_seconds": {"user": time.clock_gettime(time.CLOCK_REALTIME), "idle": 0.0},
                "qemu_cpu_seconds": time.clock_gettime(time.CLOCK_REALTIME),
            }
        if lie.group == "data" and moment == self.mutant.moment:
            spoil_data(lie.plant, self.file)
        if lie.plant in IN_AGENT:
            IN_AGENT[lie.plant](place, moment)
        self.instruments.at(moment)

    def run(self) -> Simulated:
        trial = simulated_trial(self.mutant)
        out = _Stream(self.at)
        session = self._session(out, trial)
        run_trial(session, trial, 1)
        frames = frames_of(out.getvalue())
        text = next((f["body"] for f in frames if f.get("name") == "sampler.jsonl"), b"")
        record = list(read_records(self.machine.records))[-1]
        is_whole = "before" in self.outer and "after" in self.outer
        return Simulated(
            with_outer_host(record, self.outer if is_whole else None),
            tuple(json.loads(line) for line in text.splitlines()),
        )

    def _session(self, out: io.BytesIO, trial: Trial) -> HostSession:
        session = make_session(self.machine, out, trial)
        calibrator = session.calibrator("systemd-scope")
        self._set(calibrator, "calibrate", lambda *_: CALIBRATED)
        self._set(type(calibrator), "on", lambda one, *_: one)
        programs = str(self.machine.root / "programs")
        facts = {**session.facts, **self.mutant.lie.trial.get("facts", {})}
        request = replace(session.request, programs_dir=programs)
        return replace(session, request=request, facts=facts, stream=FrameStream(out))


def simulated_trial(mutant: Mutant) -> Trial:
    changes = {key: value for key, value in mutant.lie.trial.items() if key != "facts"}
    settings = {"cage": CAGE, "dataset": DATASET, "cache": "cold"}
    return make_trial("pcread", **{"collectors": (), "read_ahead_kb": None, **settings, **changes})


@contextmanager
def simulation(mutant: Mutant) -> Iterator[Simulation]:
    """Make a simulated host; at the end, nothing of it is left."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=ROOT / "build/tests", prefix="mutant-"))
    undo: list[Any] = []

    def set_(owner: Any, name: str, value: Any) -> None:
        one = patch.object(owner, name, value)
        one.start()
        undo.append(one)

    with patch.dict(os.environ):
        try:
            made = Simulation(root, mutant, set_)
            made.make()
            yield made
        finally:
            for one in reversed(undo):
                one.stop()
            shutil.rmtree(root, ignore_errors=True)


def simulate(mutant: Mutant) -> Simulated:
    with simulation(mutant) as made:
        return made.run()
