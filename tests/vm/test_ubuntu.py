"""A guest with Ubuntu 24.04: all trials are ok, under root's systemd and under a user's, and all
limits are proven.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.hosts.vm import guest
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.vm_host import GuestOptions
from pagecage.model.record import read_records
from pagecage.verdicts.evaluate import evaluate
from tests.builders.command_line import CommandLine

pytestmark = [pytest.mark.vm, pytest.mark.long]
NAME = "ubuntu"


@pytest.fixture(scope="module")
def ubuntu() -> Iterator[None]:
    """The guest, with one processor."""
    cache = GuestCache.of_user(NAME)
    try:
        guest.up(print, cache, GuestOptions("noble", 1))
        yield
    finally:
        guest.down(print, cache)


def test_smoke(ubuntu: None, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    printed = line.succeed("run", "smoke", "--dataset", "smoke", "--host", f"guest-{NAME}")
    folder = next(line.runs.glob(f"latest-smoke@*/hosts/guest-{NAME}"))
    facts = json.loads(next((folder / "facts").iterdir()).read_text())
    assert facts["kernel"].startswith("6.8.")
    assert facts["systemd"]["version"] == 255
    records = [record for record in read_records(folder / "records.jsonl") if record.is_final]
    assert [record.outcome for record in records] == ["ok"] * 4, printed
    for record in records:
        series = map(json.loads, (folder / record.traces["sampler"]).read_text().splitlines())
        verdicts = evaluate(record, [*series])
        assert {limit.verdict for limit in verdicts.limits} <= {"enforced"}, verdicts.limits
        assert verdicts.cache_state_reached.verdict == "reached"
