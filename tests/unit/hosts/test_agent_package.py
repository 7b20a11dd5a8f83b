"""Files copied to a host: one file that runs with nothing installed, and the same bytes for the
same sources.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.agent_package import (
    agent_bytes,
    make_agent_package,
    require_programs,
    require_workloads,
)
from pagecage.model.cage import Cage
from pagecage.model.trial import SetupStep
from pagecage.process import run
from tests.fake_host.machine import make_trial
from tests.tree import ROOT

AGENT_PYTHON = [
    sys.executable,
    "-I",
    "-S",
]  # no site-packages, no PYTHONPATH: what a bare host offers


@pytest.fixture
def checkout_of(tmp_path: Path) -> Path:
    (tmp_path / "build/host/bin").mkdir(parents=True)
    program = tmp_path / "build/host/bin/pcread"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def test_equal_sources_make_equal_bytes() -> None:
    assert agent_bytes() == agent_bytes()
    times = {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(agent_bytes())).infolist()}
    assert times == {(1980, 1, 1, 0, 0, 0)}, "the hour of packing would name another agent"


def test_only_what_the_host_needs_travels() -> None:
    names = zipfile.ZipFile(io.BytesIO(agent_bytes())).namelist()
    assert "pagecage/agent/main.py" in names
    assert not [
        n
        for n in names
        if n.split("/")[1:2] in (["cli"], ["definitions"], ["hosts"], ["verdicts"], ["campaign.py"])
    ]


def test_the_agent_runs_on_a_bare_python(checkout_of: Path) -> None:
    package = make_agent_package(checkout_of)
    done = run([*AGENT_PYTHON, package.agent, "facts", checkout_of], env={"PATH": "/usr/bin:/bin"})
    facts = json.loads(done.stdout)
    assert facts["data_dir"] == str(checkout_of)
    assert facts["memory_bytes"] > 0
    assert facts["cpus"] >= 1


@pytest.mark.parametrize(("words", "status"), [([], 1), (["dance"], 2), (["facts"], 2)])
def test_a_wrong_word_is_answered_with_the_usage(
    checkout_of: Path, words: list[str], status: int
) -> None:
    package = make_agent_package(checkout_of)
    done = run([*AGENT_PYTHON, package.agent, *words], check=False)
    assert done.status == status
    assert done.stdout == ""


def test_the_hash_names_the_bytes(checkout_of: Path) -> None:
    package = make_agent_package(checkout_of)
    assert package.agent.read_bytes() == agent_bytes()
    assert len(package.agent_sha256) == 64
    assert [path.name for path in package.programs] == ["pcread"]


def test_an_agent_that_is_up_to_date_is_left_alone(checkout_of: Path) -> None:
    before = make_agent_package(checkout_of).agent.stat().st_mtime_ns
    assert make_agent_package(checkout_of).agent.stat().st_mtime_ns == before


def test_an_old_agent_is_replaced(checkout_of: Path) -> None:
    make_agent_package(checkout_of).agent.write_bytes(b"old")
    assert make_agent_package(checkout_of).agent.read_bytes() == agent_bytes()


def test_without_workloads_the_agent_travels_alone(tmp_path: Path) -> None:
    """A replay runs none but pcgen, and that for limits on I/O alone."""
    package = make_agent_package(tmp_path)
    assert (package.programs, package.agent.read_bytes()) == ((), agent_bytes())
    with pytest.raises(HostError, match="not built") as caught:
        require_workloads(package)
    assert caught.value.hint == "make build"


def test_a_workload_that_was_not_compiled_is_named(checkout_of: Path) -> None:
    """`make experiment` compiles what one experiment names; another may be run by hand."""
    package = make_agent_package(checkout_of)
    made = make_trial()
    read = replace(
        made,
        workload=replace(made.workload, program="pcread", kind="handshake"),
        dataset=None,
        before=None,
    )
    require_programs(package, [read])
    with pytest.raises(HostError, match="pcscan is not built") as caught:
        require_programs(
            package, [read, replace(read, workload=replace(read.workload, program="pcscan"))]
        )
    assert caught.value.hint == "make build"
    with pytest.raises(HostError, match="fill, pcgen are not built"):
        require_programs(
            package, [replace(read, dataset=made.dataset, before=SetupStep("fill", ()))]
        )
    grep = replace(read, workload=replace(read.workload, program="/usr/bin/grep", kind="command"))
    with pytest.raises(HostError, match="pcgen is not built"):
        require_programs(package, [grep])
    require_programs(package, [replace(grep, cage=Cage("memory", {"MemoryMax": 64 * 1024**2}))])


def launcher() -> str:
    """The Java workload's launcher as tools/build-workloads writes it where a jar was made."""
    script = (ROOT / "tools/build-workloads").read_text()
    [line] = [
        line.strip() for line in script.splitlines() if "there is no Java runtime here" in line
    ]
    return line.removeprefix("printf '%s\\n' ").removesuffix(" \\").strip("'")


def test_a_host_without_java_says_that_it_cannot(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", launcher()], check=False, env={"PATH": str(tmp_path)})
    assert (done.status, done.stderr.strip()) == (77, "there is no Java runtime here")
