"""Scenarios `fleet` and `provision`: two hosts that are folders, and a small ansible-playbook."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagecage.errors import EXIT_USAGE, PagecageError
from pagecage.fleet.folder import FleetFolder, find_fleet
from pagecage.model.record import Record
from pagecage.runner.run_folder import RunFolder
from reliability.faults import runs
from reliability.faults.calls import command_line
from reliability.faults.scenario import Scenario, own_role, pagecage, replace_everywhere
from reliability.faults.supervisor import Limits
from tests.fake_host.rack import FIT
from tests.tree import ROOT

_ANSIBLE = ROOT / "tests/fake_host/small_ansible.py"
_GROUP = "rack"
_HOSTS = ("left", "right")
_WORDS = ("run", runs.NAME, "--host", _GROUP, "--dataset", "smoke", "--seed", "7")
_ONE_TRIAL = (
    *("--treatment", "cage=smoke", "--treatment", "pattern=random", "--repeats", "1"),
    "--yes",
)


def prepare(root: Path) -> None:
    runs.prepare(root)
    for name in _HOSTS:
        for folder in ("spool", "data", "fleet"):
            (root / name / folder).mkdir(parents=True)
        (root / name / "spool/script.json").write_text("{}")
        (root / name / "spool/facts.json").write_text(json.dumps(FIT))


def arrange(root: Path) -> None:
    runs.arrange(root)
    os.environ["FAKE_RACK"] = str(root)
    variables = {name: {"pagecage_data_dir": str(root / name / "data")} for name in _HOSTS}
    inventory = {
        "_meta": {"hostvars": variables},
        "all": {"children": [_GROUP]},
        _GROUP: {"hosts": list(_HOSTS)},
    }
    replace_everywhere("STOP_SECONDS", 0.5)
    replace_everywhere("TERMINATION_SECONDS", 0.5)
    replace_everywhere("inventory_of", lambda *_: inventory)
    replace_everywhere("ansible_program", lambda *_: str(_ANSIBLE))


def run(root: Path) -> int:
    arrange(root)
    return pagecage(root, *_WORDS, *_ONE_TRIAL)


def resume(root: Path) -> int:
    """Resume the run; start it anew if there is none that could be resumed."""
    arrange(root)
    status = pagecage(root, "run", runs.NAME, "--host", _GROUP, "--resume")
    if status == EXIT_USAGE and not acknowledged(root):
        time.sleep(1)  # a run is named by its second
        status = pagecage(root, *_WORDS, *_ONE_TRIAL)
    return status


def records_of(root: Path) -> list[tuple[str, Record]]:
    found = []
    for path in sorted((root / "runs").glob("[!.l]*/hosts/*")):
        where = f"{path.parent.parent.name}/{path.name}"
        found += [(where, record) for record in RunFolder(path).records()]
    return found


def acknowledged(root: Path) -> dict[str, str]:
    return {
        f"{where} {record.trial_id}": runs.comparable(record)
        for where, record in records_of(root)
        if record.is_final
    }


def result(root: Path) -> dict[str, str]:
    folder = find_fleet(root / "runs", f"{runs.NAME}@{_GROUP}")
    assert folder is not None
    return {
        key.partition("/")[2]: record
        for key, record in acknowledged(root).items()
        if key.startswith(folder.path.name)
    }


def wrong(root: Path, before: dict[str, str], expected: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the records after the next start."""
    yield from runs.wrongly_counted(before, acknowledged(root), records_of(root))
    if result(root) != expected:
        yield "the results differ from an unharmed execution's"
    for path in (root / "runs").glob("[!.l]*"):
        with suppress(PagecageError):
            FleetFolder(path).document()
            continue
        yield "a fleet's folder is not whole"


def role(pid: int) -> str | None:
    """Return `main` for the controller, `ansible` for the small ansible-playbook."""
    return own_role(pid) or ("ansible" if "small_ansible" in command_line(pid) else None)


_EXTRA = (
    r"log(/.*)?",
    r"tmp/[a-z0-9_N]+",
    r"runs/N-smoke-rack(/fleet\.json|/hosts.*|/streams|/rounds\.jsonl)?",
    r"build/fleet/.*",
    r"(left|right)/spool/calls",
)
FLEET = Scenario(
    *("fleet", prepare, run, resume, result, acknowledged, wrong, role, runs.faults, _EXTRA),
    limits=Limits(lingering_seconds=3.0),
)


def provision(root: Path) -> int:
    arrange(root)
    return pagecage(root, "host", "provision", _GROUP)


def provisioned(root: Path) -> dict[str, str]:
    return {name: (root / name / "provisioned").read_text() for name in _HOSTS}


def _nothing(_: Path) -> None:
    return None


def wrongly_provisioned(root: Path, _: Any, expected: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the hosts after the next start."""
    if not all((root / name / "provisioned").exists() for name in _HOSTS):
        yield "a host was not provisioned"
    elif provisioned(root) != expected:
        yield "the hosts differ from an unharmed execution's"


PROVISION = Scenario(
    *("provision", prepare, provision, provision, provisioned, _nothing, wrongly_provisioned, role),
    runs.faults,
    (r"log/.*", r"tmp/[a-z0-9_N]+"),
    limits=Limits(lingering_seconds=3.0),
)
