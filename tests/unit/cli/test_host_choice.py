from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import Cage, DiskLimits
from pagecage.planning import host_choice
from pagecage.planning.host_choice import choose_host
from pagecage.planning.options import RunOptions, parse_disks
from tests.builders.facts import FIT
from tests.builders.plans import plan_of
from tests.fake_host.hosts import scripted


def test_directories_by_name(tmp_path: Path) -> None:
    assert parse_disks([f"wal={tmp_path}", "log=sub/x"]) == {
        "wal": str(tmp_path),
        "log": str(Path("sub/x").absolute()),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wal"], "'wal' is not NAME=DIR"),
        (["=x"], "'=x' is not NAME=DIR"),
        (["wal="], "'wal=' is not NAME=DIR"),
        (["wal=/", "wal=/tmp"], "'wal' is given twice"),
        (["wal=/etc/passwd"], "'/etc/passwd' is not a directory"),
    ],
)
def test_refusals(words: list[str], said: str) -> None:
    with pytest.raises(PagecageError, match=said):
        parse_disks(words)


def test_a_local_host_has_the_disks(tmp_path: Path) -> None:
    host = choose_host("local", tmp_path, print, [f"wal={tmp_path}"])
    assert isinstance(host, LocalHost)
    assert host.disks == {"wal": str(tmp_path)}
    found = host.facts()
    assert found["disks"]["wal"] == found["disk"]


def test_the_guest_has_disks_of_its_own() -> None:
    with pytest.raises(PagecageError, match="--disk applies only to --host local"):
        choose_host("vm", None, print, ["wal=/tmp"])


@pytest.mark.parametrize(("words", "name"), [([], "vm"), (["wal=/elsewhere"], "local")])
def test_auto_takes_the_guest_for_a_disk_that_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], name: str
) -> None:
    """The machine could serve a cage of one disk."""
    disk = {"name": "vdc", "maj_min": "254:32", "node": "/dev/vdc"}
    data = {"name": "vdb", "maj_min": "254:16", "node": "/dev/vdb"}
    monkeypatch.setattr(
        LocalHost,
        "facts",
        lambda host: {**FIT, "disk": data, "disks": dict.fromkeys(host.disks, disk)},
    )
    monkeypatch.setattr(host_choice, "_guest", lambda _: scripted(tmp_path, tmp_path))
    cage = Cage("apart", {}, disks={"wal": DiskLimits({"IOWriteIOPSMax": 50})})
    plan = plan_of()
    plan = replace(plan, trials=tuple(replace(trial, cage=cage) for trial in plan.trials))
    said: list[str] = []
    options = RunOptions(data_dir=tmp_path, disk=tuple(words))
    _, host = host_choice.plan_on_host(options, lambda _: plan, said.append)
    assert host.name == name
    assert ("this host has no disk 'wal'" in " ".join(said)) == (name == "vm")
