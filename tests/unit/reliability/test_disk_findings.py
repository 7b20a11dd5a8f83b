"""The words for limits on stacks, and the scripts that make and probe them."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import facts
from pagecage.hosts.agent_package import agent_bytes
from pagecage.process import run
from reliability.campaign import read_results
from reliability.disks import campaign, probe
from reliability.disks.section import (
    COLUMNS,
    LEAKS,
    PROVEN,
    REFUSED,
    UNPROVEN,
    UNTESTED,
    disks_section,
    word,
)
from reliability.disks.stacks import BY_NAME, script
from tests.fake_host.machine import Machine


def held(cap: float) -> dict[str, Any]:
    calibration = {"held": True, "allowed": cap * 1.08, "observed": cap, "error": None}
    return {"cap": cap, "calibration": calibration, "fio_rate": cap}


CELL: dict[str, Any] = {
    "guest": "debian-13",
    "as": "root",
    "stack": "partition",
    "directory": "/stacks/partition/root",
    "systemd": 257,
    "kernel": "6.12.1",
    "node": "/dev/vdc",
    "stack_of_devices": ["vdc1", "vdc"],
    "refused": [],
    "not_in_force": [],
    "refused_writes": [],
    "limits": {name: held(cap) for name, cap in probe.LIMITS.items()}
    | {"buffered": {"cap": 100, "fio_rate": 101.0}},
}


def words(**changes: Any) -> dict[str, str]:
    cell = {**CELL, **changes}
    return {column: word(cell, column) for column in COLUMNS}


def limits(name: str, **changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(CELL["limits"])
    part = found[name]
    for key, value in changes.items():
        (part if key in part else part["calibration"])[key] = value
    return {"limits": found}


def test_a_stack_on_which_everything_holds() -> None:
    assert set(words().values()) == {PROVEN}


def test_a_limit_that_fio_passes_although_the_slice_shows_it_held() -> None:
    found = words(**limits("IOReadIOPSMax", fio_rate=5000.0))
    assert [name for name, one in found.items() if one == LEAKS] == ["IOReadIOPSMax"]
    assert words(**limits("buffered", fio_rate=5000.0))["buffered"] == LEAKS
    unflushed = words(**limits("buffered", fio_rate=114.0))
    assert unflushed["buffered"] == PROVEN, "an eighth is not on the disk yet"


def test_a_limit_that_the_product_itself_calls_unproven_or_passed() -> None:
    for verdict in (None, False):
        assert words(**limits("IOReadIOPSMax", held=verdict))["IOReadIOPSMax"] == UNPROVEN


def test_refusals() -> None:
    refused = [{"requirement": "local_disk", "reason": "no disk", "hint": ""}]
    assert set(words(refused=refused).values()) == {REFUSED}
    assert set(words(not_in_force=["io.max.rbps is max, not 1"]).values()) == {REFUSED}
    writes = words(refused_writes=["/x is vfat"], **limits("buffered", fio_rate=1e9))
    assert {name for name, one in writes.items() if one == REFUSED} == {
        *("IOWriteBandwidthMax", "IOWriteIOPSMax", "buffered")
    }


def test_a_stack_that_was_not_made_is_no_proof() -> None:
    cell = {key: CELL[key] for key in ("guest", "as", "stack", "directory")}
    assert {word({**cell, "failed": ["x"]}, column) for column in COLUMNS} == {UNTESTED}


def section(results: Path, *cells: Any) -> str:
    (results / "disks.json").write_text(json.dumps({"cells": cells}))
    return "\n".join(disks_section(results))


def test_the_section_names_the_worst_case(tmp_path: Path) -> None:
    good = section(tmp_path, CELL)
    assert "None read back well and did not hold." in good
    assert "| Debian 13 | 6.12.1 | root | 1 | 6 | 0 | 0 | 0 |" in good
    assert "- Debian 13 as root: 17 of 18 stacks" in good, "what is not measured is said"
    bad = section(tmp_path, {**CELL, **limits("buffered", fio_rate=1e9)})
    assert "**1 read back well and did not hold: buffered on ext4 on a partition.**" in bad


def test_a_user_who_is_refused_everywhere_is_one_sentence(tmp_path: Path) -> None:
    refused = [{"requirement": "io_controller", "reason": "there is no io controller"}]
    barred = {**CELL, "as": "undelegated", "refused": refused}
    page = section(tmp_path, CELL, barred, {**barred, "stack": "tmpfs"})
    assert "Of 6 limits, 6 proven." in page, "those of others alone"
    sentence = "Refused on every stack, as a user without delegation of Debian 13"
    assert f"{sentence}: there is no io controller." in page
    assert "- there is no io controller: " not in page
    one = {**barred, "stack": "tmpfs", "refused": [{**refused[0], "reason": "tmpfs"}]}
    page = section(tmp_path, CELL, barred, one)
    assert "- there is no io controller: ext4 on a partition." in page, "for two reasons"


def test_the_section_says_that_nothing_was_measured(tmp_path: Path) -> None:
    assert "This has not been measured yet" in "\n".join(disks_section(tmp_path))


def test_the_script_that_makes_the_stacks_is_one_for_a_shell() -> None:
    made = script(BY_NAME)
    run(["sh", "-n"], input_text=made)
    assert made.count("label: gpt") == 2
    assert "label: gpt' 'size=1000MiB' |" in script(["tmpfs"]), "only the stack that others need"


def test_findings_replace_those_of_the_same_guest_user_and_stack(tmp_path: Path) -> None:
    path = tmp_path / "disks.json"
    for stack, uid in (("tmpfs", 1), ("partition", 2), ("tmpfs", 3)):
        campaign.keep({**CELL, "stack": stack, "uid": uid}, path)
    stored = [(cell["stack"], cell["uid"]) for cell in read_results(path)["cells"]]
    assert stored == [("partition", 2), ("tmpfs", 3)]


def test_the_probe_runs_on_the_agents_modules_alone(tmp_path: Path) -> None:
    """This machine is no systemd host, or the directory is on no disk: the probe says so."""
    (tmp_path / "agent.pyz").write_bytes(agent_bytes())
    argv = [sys.executable, probe.__file__, "root", "/proc"]
    done = run(argv, env={"PYTHONPATH": str(tmp_path / "agent.pyz")}, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert "/proc is on proc, which is on no local disk" in str(found["refused"])


@pytest.mark.parametrize(
    ("name", "rate"), [("IOReadIOPSMax", 50.0), ("IOWriteBandwidthMax", 8000.0)]
)
def test_the_rate_is_fios_own(name: str, rate: float) -> None:
    reads = {"io_bytes": 400, "total_ios": 100, "runtime": 2000}
    writes = {"io_bytes": 16000, "total_ios": 4, "runtime": 2000}
    text = "fio: a note\n" + json.dumps({"jobs": [{"read": reads, "write": writes}]})
    assert probe.rate_of(text, name) == rate
    assert probe.rate_of("fio: failed", name) is None


def test_the_probe_drives_every_limit(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "resolve_disk", vars(facts)["resolve_disk"])
    directory = machine.data / "probed"
    directory.mkdir()
    found = probe.probe(directory, user=False)
    print(json.dumps(found, indent=1))
    assert set(found["limits"]) == set(COLUMNS)
    assert found["not_in_force"] == []
    assert list(directory.iterdir()) == [], "nothing is left there"
