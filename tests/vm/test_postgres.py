"""PostgreSQL behind 500 I/Os per second: the kernel's limit beside QEMU's throttling."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.builders.command_line import pagecage_in

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(2400)]
_IOPS = 500
_WITHIN = 0.05
_REPEATS = 2
_CAGE = f"""
about = "{_IOPS} I/Os per second each way, and less memory than the data need."
MemoryMax = "64MiB"
IOReadIOPSMax = {_IOPS}
IOWriteIOPSMax = {_IOPS}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "cgroups").mkdir()
    (folder / "cgroups/pg-500.toml").write_text(_CAGE)
    (folder / "experiments").mkdir()
    return folder


def transactions(project: Path, driver: str, mode: str) -> list[float]:
    """Return the transactions per second of the included trials."""
    treatment = ("--treatment", "cage=pg-500", "--treatment", f"mode={mode}")
    how = ("--dataset", "emulated", "--repeats", str(_REPEATS), "--driver", driver, "--seed", "1")
    words = ("run", "postgres-gp3", "--host", "vm", "--cage", "pg-500", *treatment, *how)
    done = pagecage_in(project, *words, timeout_seconds=1500)
    assert done.status == 0, done.stderr
    return tps_of(json.loads(pagecage_in(project, "show", "postgres-gp3", "--json").stdout))


def tps_of(shown: dict[str, Any]) -> list[float]:
    included = [trial for trial in shown["trials"] if trial["is_included"]]
    assert included, [trial["verdicts"] for trial in shown["trials"]]
    return [trial["response"]["tps"] for trial in included]


@pytest.mark.parametrize("mode", ["select", "tpcb"])
def test_the_kernel_and_qemu_leave_equally_many_transactions(project: Path, mode: str) -> None:
    """blk-throttle counts requests before they are merged, QEMU after: both are random here."""
    by_kernel = transactions(project, "systemd-scope", mode)
    by_qemu = transactions(project, "qemu-throttle", mode)
    print(f"{mode}: io.max {by_kernel}, QEMU {by_qemu}")
    assert median(by_kernel) == pytest.approx(median(by_qemu), rel=_WITHIN)
