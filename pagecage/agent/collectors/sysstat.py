"""Collectors that run iostat and sar with a period of one second.

Both are ended by SIGINT, because SIGTERM cuts off iostat's JSON.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.linux.block_device import stack_names
from pagecage.process import Process, find_tool, run

_ENVIRONMENT = {"S_TIME_FORMAT": "ISO", "LC_ALL": "C"}
_START_SECONDS = 5.0


def _wait_for_bytes(path: Path, process: Process[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.01)


class Iostat:
    """`iostat -o JSON -x -t -y -d DEVICE... 1` into iostat.json, for all devices of the stack."""

    name = "iostat"

    def __init__(self, context: CollectorContext) -> None:
        self._children = context.children
        self._path = context.directory / "iostat.json"
        devices = stack_names(context.disk)
        self._argv = ["iostat", "-o", "JSON", "-x", "-t", "-y", "-d", *devices, "1"]
        self._process: Process[bytes] | None = None

    def start(self) -> None:
        """Start iostat if it is installed."""
        if find_tool("iostat"):
            with self._path.open("wb") as file:
                self._process = self._children.start(self._argv, stdout=file, env=_ENVIRONMENT)

    def wait_until_recording(self) -> None:
        """Wait for the first byte, which comes at once; the first sample comes a second later."""
        if self._process:
            _wait_for_bytes(self._path, self._process)

    def stop(self) -> CollectorResult:
        """Interrupt iostat and check that its file is valid JSON."""
        if self._process is None:
            return CollectorResult("missing", "iostat is not installed")
        if self._children.interrupt(self._process) is None:
            return CollectorResult("failed", "iostat died while the trial ran", files=(self._path,))
        try:
            json.loads(self._path.read_text())
        except ValueError:
            return CollectorResult("partial", "iostat's JSON is cut off", files=(self._path,))
        return CollectorResult("ok", files=(self._path,))


class Sar:
    """`sar -o sar.bin 1`, converted by `sadf` into sar.json: disk, paging, memory, I/O."""

    name = "sar"

    def __init__(self, context: CollectorContext) -> None:
        self._children = context.children
        self._binary = context.directory / "sar.bin"
        self._json = context.directory / "sar.json"
        self._disk = context.disk.name
        self._process: Process[bytes] | None = None

    def start(self) -> None:
        """Start sar if it is installed."""
        if find_tool("sar"):
            argv = ["sar", "-o", str(self._binary), "1"]
            self._process = self._children.start(argv, env=_ENVIRONMENT)

    def wait_until_recording(self) -> None:
        """Wait for the header, which sadc writes as soon as it runs."""
        if self._process:
            _wait_for_bytes(self._binary, self._process)

    def stop(self) -> CollectorResult:
        """Interrupt sar, wait until its file is complete, and convert it with sadf."""
        if self._process is None:
            return CollectorResult("missing", "sar is not installed")
        if self._children.interrupt(self._process) is None:
            return CollectorResult("failed", "sar died while the trial ran")
        return self._read_back()

    def _read_back(self) -> CollectorResult:
        sadf = [
            "sadf",
            "-j",
            str(self._binary),
            "--",
            "-d",
            "-r",
            "-B",
            "-b",
            f"--dev={self._disk}",
        ]
        # sar's child sadc may still be writing its last block after sar has exited.
        for _ in range(3):
            done = run(sadf, env=_ENVIRONMENT, check=False, timeout_seconds=30)
            if done.ok:
                self._json.write_text(done.stdout)
                return CollectorResult("ok", files=(self._binary, self._json))
            time.sleep(0.1)
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        return CollectorResult(
            "partial", f"sadf cannot read sar.bin: {reason[0]}", files=(self._binary,)
        )
