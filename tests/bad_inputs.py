"""A checkout with invalid files, runs, experiments and cages, and the rules for error messages."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import RUNNERS
from pagecage.process import Completed
from tests.checkout import Checkout
from tests.fixtures.small_runs import FOLDER, unpacked
from tests.tree import ROOT

GOOD = "20260101T000000Z-smoke-vm"
"""A valid run among invalid ones."""
_DEEP = b"[" * 100_000
_DIGITS = b"9" * 5000
_PYTHONS = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b|\[Errno|Traceback|<class ")
FILES = {
    "empty": b"",
    "binary": b"\xff\xfe\0\1",
    "nul.yaml": b"a: \0b",
    "cut.json": b'{"a":',
    "list.json": b"[]",
    "deep.json": _DEEP,
    "deep.yaml": b"[" * 5000,
    "digits.json": b"[" + _DIGITS + b"]",
    "latin.txt": b"caf\xe9",
    "tag.yaml": b'!!python/object/apply:os.system ["true"]',
    "circle.yaml": b"&a [*a]",
    "null.json": b"null",
    "number.json": b"5",
    "docker.json": b'[{"HostConfig": 5, "Config": {}}]',
    "rate.json": (
        b'[{"HostConfig": {"BlkioDeviceReadBps": [{"Path": "/dev/sda", "Rate": "z"}]}, "Id": "a"}]'
    ),
    "pod.json": b'{"kind": "Pod", "spec": 5}',
    "unit": b"[Service]\nMemoryMax=zz\n",
    "volume.json": b'{"Volumes": [{"VolumeType": "gp9", "Size": 5}]}',
    "less.json": b'{"Volumes": [{"VolumeType": "gp3", "Size": -5}]}',
    "probe.json": b'{"probe_version": 99}',
    "compose.yaml": b"services: 5\n",
    "service.yaml": (
        b"services: {built: {build: .}, limited: {image: a, mem_limit: zz}, plain: {image: a},"
        b' text: {image: a, command: "\'"}}\n'
    ),
}
ARCHIVES = {
    "other.zip": {"x": "y"},
    "list.zip": {"bundle.json": "[]"},
    "deep.zip": {"bundle.json": "[" * 100_000},
    "kinds.zip": {"bundle.json": '{"bundle_version": 1, "run_id": 5, "files": 5}'},
    "outside.zip": {"bundle.json": '{"bundle_version": 1, "run_id": "../x", "files": []}'},
}
PLANS: dict[str, bytes | dict[str, Any]] = {
    "p-empty": b"",
    "p-binary": b"\xff\xfe\0",
    "p-list": b"[]",
    "p-null": b"null",
    "p-cut": b'{"plan_version": 1,',
    "p-deep": _DEEP,
    "p-digits": b'{"a":' + _DIGITS + b"}",
    "p-newer": {"plan_version": 99},
    "p-version": {"plan_version": "x"},
    "p-trials": {"trials": 5},
    "p-trial": {"trials": [{}]},
    "p-definition": {"definition": []},
    "p-host": {"host": None},
}
RECORDS = {
    "r-list": (b"", b"[]\n"),
    "r-deep": (b"", _DEEP + b"\n"),
    "r-newer": (b"", b'{"record_version": 99}\n'),
    "r-nan": (b'"record_version":1', b'"record_version":NaN'),
    "r-outcome": (b'"outcome":"ok"', b'"outcome":5'),
    "r-response": (b'"response":{', b'"response":7,"x":{'),
    "r-trial": (b'"trial_id":"', b'"trial_id":"other'),
    "r-samples": (b'"samples":[', b'"samples":["x",'),
}
EXPERIMENTS = {
    "no-repeats": ("repeats = 1", "repeats = 0"),
    "many-repeats": ("repeats = 1", "repeats = 999999999999"),
    "nan-repeats": ("repeats = 1", "repeats = nan"),
    "no-data": ('"64MiB"', '"0MiB"'),
    "all-data": ('"64MiB"', '"99999999999TiB"'),
    "nul": ('"--file"', '"--file\\u0000"'),
    "twice": ('["uncaged", "smoke"]', '["uncaged", "uncaged"]'),
    "outside": ('["uncaged", "smoke"]', '["../smoke"]'),
    "not-toml": ("repeats = 1", "repeats = = 1"),
    "deep": ("repeats = 1", f"repeats = {'[' * 5000}"),
    "digits": ("repeats = 1", f"repeats = {'9' * 5000}"),
}
CAGES = {
    "no-memory": 'MemoryMax = "0B"',
    "no-iops": "IOReadIOPSMax = 0",
    "much-iops": f"IOReadIOPSMax = {'9' * 30}",
    "no-share": "MemoryMax = { dataset_fraction = -1 }",
    "no-bucket": "[burst]",
    "quota": 'CPUQuota = "x"',
    "bare": 'MemoryMax = "1G"',
    "little": "MemoryMax = { dataset_fraction = 1e-9 }",
}


class BadCheckout(Checkout):
    """A checkout whose hosts refuse, with invalid files, runs, experiments and cages."""

    def __init__(self, top: Path) -> None:
        super().__init__(top, "refusing.py")
        shutil.copy("/bin/true", top / "build/host/bin/pcprobe")
        (top / "bad").mkdir()
        for name, content in FILES.items():
            (top / "bad" / name).write_bytes(content)
        for name, entries in ARCHIVES.items():
            with zipfile.ZipFile(top / "bad" / name, "w") as archive:
                for entry, text in entries.items():
                    archive.writestr(entry, text)
        (top / "bad/cut.zip").write_bytes((FOLDER / "smoke.pagecage.zip").read_bytes()[:20_000])
        self._spoil_definitions()
        self._spoil_runs()

    def write_analysis(self) -> None:
        """Copy the real `analysis`, and the folders that it reads."""
        for name in ("analysis", "containers", "docs"):
            shutil.rmtree(self.top / name, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.top / name, ignore=ignored)

    def _spoil_definitions(self) -> None:
        smoke = (self.top / "experiments/smoke.toml").read_text()
        for name, (before, after) in EXPERIMENTS.items():
            assert before in smoke
            (self.top / f"experiments/bad-{name}.toml").write_text(smoke.replace(before, after))
        for name, line in CAGES.items():
            (self.top / f"cgroups/bad-{name}.toml").write_text(f'about = "x"\n{line}\n')
        (self.top / "experiments/bad-folder.toml").mkdir()

    def _spoil_runs(self) -> None:
        runs = self.top / "runs"
        runs.mkdir()
        good = unpacked("smoke", runs / GOOD)
        plan, records = (good / "plan.json").read_bytes(), (good / "records.jsonl").read_bytes()
        for name, change in PLANS.items():
            changed = (
                change
                if isinstance(change, bytes)
                else json.dumps(json.loads(plan) | change).encode()
            )
            self._write_run(name, changed, records)
        for name, (before, after) in RECORDS.items():
            assert before in records
            self._write_run(name, plan, records.replace(before, after) if before else after)
        self._write_run("r-none", plan, b"")
        newer = '{"fleet_version":9,"hosts":{}}'
        for name, document in (("fleet", "{}"), ("fleet-cut", "["), ("fleet-newer", newer)):
            (runs / name).mkdir()
            (runs / name / "fleet.json").write_text(document)
        (runs / "of-hosts/hosts").mkdir(parents=True)
        (runs / "loop").symlink_to("loop")
        (runs / "latest-smoke").symlink_to(GOOD)
        (runs / "latest-gone").symlink_to("nowhere")

    def _write_run(self, name: str, plan: bytes, records: bytes) -> None:
        folder = self.top / "runs" / name
        folder.mkdir()
        (folder / "plan.json").write_bytes(plan)
        (folder / "records.jsonl").write_bytes(records)
        (folder.parent / f"latest-{name}").symlink_to(name)

    def written(self) -> dict[str, int]:
        """Return the modification times of all files, except those that every command writes."""
        parts = ("runs", "experiments", "cgroups", "bad", "docs")
        paths = [path for part in parts for path in (self.top / part).rglob("*")]
        left_out = ("cache", "told", "build")
        beside = [path for path in self.top.iterdir() if path.name not in left_out]
        return {str(path): path.lstat().st_mtime_ns for path in [*paths, *beside]}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BadCheckout]:
    made = BadCheckout(tmp_path_factory.mktemp("bad"))
    yield made
    made.end()


def complaint(done: Completed) -> str | None:
    """Return what is wrong with the refusal of a command, or None.

    A refusal is one sentence and at most one fix, without Python's error messages.
    """
    reported = [
        line
        for line in done.stderr.splitlines()
        if not line.startswith(("host: ", "size: ")) and not line.endswith(" ...")
    ]
    if done.status not in ((125, 126, 127) if done.argv[1] in RUNNERS else (2, 3)):
        return f"it ended with {done.status}"
    if done.stdout:
        return "it printed data"
    if found := _PYTHONS.search(done.stderr):
        return f"it says {found[0]}"
    if not reported or not reported[0].startswith("pagecage: ") or len(reported) > 2:
        return f"it says {len(reported)} sentences"
    if len(reported) == 2 and not reported[1].startswith("  fix: "):
        return "its second line is not a fix"
    return None
