"""`pagecage run NAME --host GROUP` from its arguments to its report, over hosts that are
folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import results
from pagecage.cli import fleet
from pagecage.cli.options import FleetOptions, RunOptions
from pagecage.cli.run import ResumeOptions
from pagecage.errors import EXIT_INCOMPLETE, EXIT_OK, HostError, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.fleet.preflight import Preflight
from pagecage.fleet.provisioning import FleetHost
from pagecage.hosts.agent_package import AgentPackage
from tests.fake_host.rack import FIT, Rack
from tests.order.conftest import racked

SMOKE = RunOptions(host="rack", size="smoke")
GO_ON = RunOptions(host="rack")
REPLICATE = FleetOptions()
START, AGAIN = ResumeOptions(), ResumeOptions(resume=True)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    """Two hosts, and one that does not answer."""
    with racked(tmp_path, "left", "right", "silent") as made:
        made.let_answer("left", "right")
        yield made


@pytest.fixture
def printed(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return standard error; the group `rack` means the test's hosts."""
    for module in (fleet, fleet):
        monkeypatch.setattr(module, "hosts_of", lambda _: rack.hosts())
        monkeypatch.setattr(module, "make_fleet_playbook", lambda *_: rack.stage())
        monkeypatch.setattr(module, "make_agent_package", lambda _: package_of(rack))
        monkeypatch.setattr(module, "RUNS", rack.top / "runs")
    # Results of a scripted agent cannot be judged; other tests cover reports of real records.
    monkeypatch.setattr(results, "render", lambda folder, *_: folder)
    monkeypatch.setattr(results, "tables", lambda folder, _: f"the report of {folder.name}")
    return []


def package_of(rack: Rack) -> AgentPackage:
    """Return the scripted agent with the names of the workloads of `smoke`, without a plugin."""
    return replace(rack.package(), programs=(Path("pcgen"), Path("pcread")))


@pytest.fixture
def looked_at(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a check of the two hosts; test_fleet_preflight.py tests the check itself."""
    monkeypatch.setattr(fleet, "check_hosts", lambda *_: Preflight(rack.seen()[:2], {}, {}))


def go(
    printed: list[str],
    again: ResumeOptions = START,
    options: RunOptions = SMOKE,
    fleet_options: FleetOptions = REPLICATE,
) -> int:
    return asked(printed, options, fleet_options).run(again, "")


def asked(
    printed: list[str], options: RunOptions, fleet_options: FleetOptions, *, yes: bool = False
) -> fleet.FleetCommand:
    command = "pagecage run smoke --host rack"
    return fleet.FleetCommand("smoke", options, fleet_options, command, yes, printed.append)


def refusal(call: Callable[[], object]) -> PagecageError:
    with pytest.raises(PagecageError) as caught:
        call()
    return caught.value


@pytest.mark.slow
def test_from_hosts_that_do_not_answer_to_one_report_over_all(
    rack: Rack, printed: list[str], capsys: pytest.CaptureFixture
) -> None:
    """First refused because of the silent host, then with a lost one, then resumed until nothing is
    missing.
    """
    gone = refusal(lambda: go(printed))
    assert isinstance(gone, HostError)
    assert gone.hint == "bring silent back, or leave out such hosts: --skip-unreachable"
    assert not (rack.top / "runs").exists()
    (rack.top / "units/lost").write_text("-right-")
    assert go(printed, fleet_options=FleetOptions(skip_unreachable=True)) == EXIT_INCOMPLETE
    assert any(line.startswith("left out: silent: ") for line in printed)
    assert any(line.startswith("8 trials to run on 2 hosts") for line in printed)
    assert any("right: 4 trials have no result (lost: " in line for line in printed)
    assert "  fix: pagecage run smoke --host rack --resume" in printed
    folder = find_fleet(rack.top / "runs", "smoke@rack")
    assert folder is not None
    assert "Connection refused" in folder.document()["left_out"]["silent"]
    capsys.readouterr()
    (rack.top / "units/lost").unlink()
    assert go(printed, AGAIN, GO_ON) == EXIT_OK
    out, err = capsys.readouterr()
    assert "right   4/4" in err
    assert out.startswith("the report of ")
    assert out.endswith("-smoke-rack")
    assert err.endswith("/report.html\n")
    assert len(rack.agent_calls("left")) == len(rack.agent_calls("right")) == 1
    assert go(printed, AGAIN, GO_ON) == EXIT_OK, "nothing is lacking any more"


def test_a_dry_run_shows_hosts_and_counts_and_starts_nothing(
    rack: Rack, printed: list[str], looked_at: None, capsys: pytest.CaptureFixture
) -> None:
    spread = FleetOptions(fleet="spread")
    asked(printed, replace(SMOKE, repeats=3), spread, yes=True).show_plan(False)
    reported = capsys.readouterr().out
    assert "left     8 trials, 2 repeats" in reported
    assert "right    4 trials, 1 repeats" in reported
    asked(printed, SMOKE, REPLICATE, yes=True).show_plan(True)
    assert list(json.loads(capsys.readouterr().out)) == ["left", "right"]
    assert rack.agent_calls("left") == []
    assert not (rack.top / "runs").exists()


def test_bad_wishes_are_refused_before_anything_starts(
    rack: Rack, printed: list[str], looked_at: None, tmp_path: Path
) -> None:
    assert (
        "--until-ci" in refusal(lambda: go(printed, options=replace(SMOKE, until_ci="5%"))).message
    )
    assert (
        "--data-dir"
        in refusal(lambda: go(printed, options=replace(SMOKE, data_dir=tmp_path))).message
    )
    assert (
        "saved machine state"
        in refusal(lambda: go(printed, options=replace(SMOKE, fresh="block"))).message
    )
    rack.is_like("right", **{**FIT, "kernel": "6.1"})
    unlike = refusal(
        lambda: go(
            printed, options=replace(SMOKE, repeats=2), fleet_options=FleetOptions(fleet="spread")
        )
    )
    assert "differ: kernel is 6.12 on left, 6.1 on right" in unlike.message
    rack.is_like("right", **{**FIT, "disk": {"mount_point": "/"}})
    assert "the disk that holds / on right" in refusal(lambda: go(printed)).message
    assert (
        "--repeats and --resume are mutually exclusive"
        in refusal(lambda: go(printed, AGAIN, replace(GO_ON, repeats=2))).message
    )
    assert "there is no run of smoke on rack" in refusal(lambda: go(printed, AGAIN, GO_ON)).message
    assert not (rack.top / "runs").exists()


def test_a_volume_whose_plugin_is_not_built_is_refused(
    rack: Rack, printed: list[str], looked_at: None
) -> None:
    caged = replace(SMOKE, cage="customer", enforced_by="volume", dilate="1")
    error = refusal(lambda: go(printed, options=caged))
    assert (error.message, error.hint) == (
        "libpcvolume.so, pcvolume-fuse are not built",
        "make build",
    )
    assert not (rack.top / "runs").exists()


def test_an_unknown_group_is_told_what_is_known() -> None:
    error = refusal(lambda: fleet.hosts_of("gests"))
    assert (error.message, error.hint[:29]) == (
        "there is no host 'gests', and no inventory has a group 'gests'",
        "auto, local, vm, or a group: ",
    )
    assert "guests" in error.hint


def test_a_host_that_is_nearly_one_of_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> tuple[FleetHost, ...]:
        raise PagecageError(f"no inventory has a group {name!r}", "")

    monkeypatch.setattr(fleet, "find_group", unknown)
    assert refusal(lambda: fleet.hosts_of("vn")).hint == 'did you mean "vm"?'
