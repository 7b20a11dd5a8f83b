"""Fleets from the command line, and the checks before their runs."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import results
from pagecage.agent.facts import read_facts
from pagecage.cli import fleet
from pagecage.cli.run import ResumeOptions
from pagecage.errors import EXIT_INCOMPLETE, EXIT_OK, HostError, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.fleet.preflight import Preflight, ReadyHost, check_hosts, differences
from pagecage.fleet.provisioning import FleetHost
from pagecage.hosts.agent_package import AgentPackage
from pagecage.planning.options import FleetOptions, RunOptions
from tests.builders.known import known
from tests.fake_host.rack import FIT, Rack
from tests.order.conftest import racked

SMOKE = RunOptions(host="rack", dataset="smoke")
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
    monkeypatch.setattr(fleet, "hosts_of", lambda _: rack.hosts())
    monkeypatch.setattr(fleet, "make_fleet_playbook", lambda *_: rack.stage())
    monkeypatch.setattr(fleet, "make_agent_package", lambda _: package_of(rack))
    monkeypatch.setattr(fleet, "RUNS", rack.top / "runs")
    # Results of a scripted agent cannot be judged; other tests cover reports of real records.
    monkeypatch.setattr(results, "render", lambda folder, *_: folder)
    monkeypatch.setattr(results, "tables", lambda folder, _: f"the report of {folder.name}")
    return []


def package_of(rack: Rack) -> AgentPackage:
    """Return the scripted agent with the names of the workloads of `smoke`, without a plugin."""
    return replace(rack.package(), programs=(Path("pcgen"), Path("pcread")))


@pytest.fixture
def looked_at(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a check of the two hosts; the tests further below try the check itself."""
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
    rack: Rack, printed: list[str], capsys: pytest.CaptureFixture[str]
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
    folder = known(find_fleet(rack.top / "runs", "smoke@rack"))
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
    rack: Rack, printed: list[str], looked_at: None, capsys: pytest.CaptureFixture[str]
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

    def refused(again: ResumeOptions = START, mode: FleetOptions = REPLICATE, **wishes: Any) -> str:
        options = replace(SMOKE if again is START else GO_ON, **wishes)
        return refusal(lambda: go(printed, again, options, mode)).message

    assert "--until-ci" in refused(until_ci="5%")
    assert "--data-dir" in refused(data_dir=tmp_path)
    assert "saved machine state" in refused(fresh="block")
    rack.is_like("right", **{**FIT, "kernel": "6.1"})
    unlike = refused(mode=FleetOptions(fleet="spread"), repeats=2)
    assert "differ: kernel is 6.12 on left, 6.1 on right" in unlike
    rack.is_like("right", **{**FIT, "disk": {"mount_point": "/"}})
    assert "the disk that holds / on right" in refused()
    assert "--repeats and --resume are mutually exclusive" in refused(AGAIN, repeats=2)
    assert "there is no run of smoke on rack" in refused(AGAIN)
    assert not (rack.top / "runs").exists()


def test_a_volume_whose_plugin_is_not_built_is_refused(
    rack: Rack, printed: list[str], looked_at: None
) -> None:
    caged = replace(SMOKE, cage=("customer",), enforced_by="volume", dilate="1")
    error = refusal(lambda: go(printed, options=caged))
    assert error.message == "libpcvolume.so, pcvolume-fuse are not built"
    assert error.hint == "make build"
    assert not (rack.top / "runs").exists()


def test_an_unknown_group_is_told_what_is_known() -> None:
    error = refusal(lambda: fleet.hosts_of("gests"))
    assert error.message == "there is no host 'gests', and no inventory has a group 'gests'"
    assert error.hint.startswith("auto, local, vm, or a group: ")
    assert "guests" in error.hint


def test_a_host_that_is_nearly_one_of_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> tuple[FleetHost, ...]:
        raise PagecageError(f"no inventory has a group {name!r}", "")

    monkeypatch.setattr(fleet, "find_group", unknown)
    assert refusal(lambda: fleet.hosts_of("vn")).hint == 'did you mean "vm"?'


HOSTS = ("fit", "unfitted", "foreign", "limitless", "greeting", "busy", "gone", "linked", "shared")
"""One host that can serve, and one for each reason why a host cannot."""


@contextmanager
def used_by_another(rack: Rack, *names: str) -> Iterator[None]:
    """Hold the lock of an agent on each of these hosts."""
    with ExitStack() as held:
        for name in names:
            lock = held.enter_context((rack.top / name / "spool/lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    folder = tmp_path_factory.mktemp("rack")
    with racked(folder, *HOSTS) as rack:
        (folder / "unfitted/data").rmdir()
        rack.is_like("foreign", **{**FIT, "machine": "riscv64"})
        rack.is_like("limitless", **{**FIT, "cgroup": {**FIT["cgroup"], "controllers": ["memory"]}})
        (folder / "greeting/spool/facts.json").write_text("Welcome!\n{}")
        (folder / "linked/spool").rename(folder / "linked/of-another-user")
        (folder / "linked/spool").symlink_to(folder / "linked/of-another-user")
        (folder / "shared/spool").chmod(0o777)
        rack.let_answer(*(name for name in HOSTS if name != "gone"))
        yield rack


@pytest.fixture(scope="module")
def found(hosts: Rack) -> Preflight:
    """The result of one check of all of them."""
    with used_by_another(hosts, "busy"):
        return check_hosts(hosts.stage(), "rack", hosts.hosts())


def test_a_look_tells_who_can_serve(found: Preflight) -> None:
    [fit] = found.ready
    assert (fit.host.name, fit.facts) == ("fit", FIT)
    assert list(found.unreachable) == ["gone"]
    assert set(found.unfit) == set(HOSTS) - {"fit", "gone"}


@pytest.mark.parametrize("name", ["linked", "shared"])
def test_a_spool_that_another_user_could_have_made_is_refused(
    hosts: Rack, found: Preflight, name: str
) -> None:
    """Shared memory is empty after a boot, and every user can then make the directory."""
    sentence = str(found.unfit[name])
    assert "is a link, belongs to another user, or others can write to it" in sentence
    assert f"rm -rf {hosts.top / name}/spool" in sentence
    assert not list((hosts.top / name).glob("*/agent.pyz"))


def test_only_hashes_that_the_controller_sent_are_believed(hosts: Rack, found: Preflight) -> None:
    """A host that claims to have the package, with another agent, gets the package."""
    agent = hosts.top / "fit/spool/agent.pyz"
    sent = agent.read_bytes()
    agent.write_bytes(b"another agent")
    agent.with_name("package.sha256").write_text(hosts.stage().sums[0].split()[0] + "\n")
    with used_by_another(hosts, "busy"):
        check_hosts(hosts.stage(), "rack", (hosts.host("fit"),))
    assert agent.read_bytes() == sent


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        (
            "unfitted",
            "unfitted: it was never provisioned for experiments (no-data-dir)",
            "make provision HOST=unfitted",
        ),
        ("foreign", "foreign is riscv64", None),
        ("limitless", "the io controller is not available", "make provision HOST=rack"),
        ("greeting", "", "make sure that its login shell prints nothing"),
    ],
    ids=["never made fit", "another architecture", "without limits", "it greets"],
)
def test_a_host_that_cannot_serve(found: Preflight, name: str, says: str, hint: str | None) -> None:
    assert says in found.unfit[name].message
    assert found.unfit[name].hint == hint or hint is None


def test_a_host_that_does_not_answer(found: Preflight) -> None:
    assert isinstance(found.unreachable["gone"], HostError)
    assert "Connection refused" in found.unreachable["gone"].message


def test_a_host_that_another_run_uses(found: Preflight) -> None:
    assert found.unfit["busy"].message == "busy: another run is using this host"


def test_our_own_agent_may_use_it_where_its_kit_is(hosts: Rack, found: Preflight) -> None:
    """`fit` got its package by the first check; `busy` has none, and gets none while it is busy."""
    working = ["fit", "busy"]
    with used_by_another(hosts, *working):
        again = check_hosts(hosts.stage(), "rack", [hosts.host(name) for name in working], working)
    assert [one.host.name for one in again.ready] == ["fit"]


def test_hosts_that_are_alike(rack: Rack) -> None:
    assert list(differences(rack.seen())) == []


def test_hosts_that_differ_are_told_apart(rack: Rack) -> None:
    left, right = rack.seen()[:2]
    facts = {**FIT, "kernel": "6.1", "disk": {"filesystem": "xfs"}, "memory_bytes": 2**30}
    other = replace(right, facts=facts)
    assert list(differences([left, other])) == [
        "kernel is 6.12 on left, 6.1 on right",
        "disk.filesystem is ext4 on left, xfs on right",
        "their memory differs by more than 5 %",
    ]


def test_an_empty_group_and_a_host_without_a_directory_are_refused(rack: Rack) -> None:
    with pytest.raises(PagecageError, match="the group rack has no hosts"):
        check_hosts(rack.stage(), "rack", ())
    with pytest.raises(PagecageError, match="left has no pagecage_data_dir"):
        check_hosts(rack.stage(), "rack", (FleetHost("left", "left", {}),))
    with pytest.raises(PagecageError, match="cannot name a run folder"):
        check_hosts(rack.stage(), "rack", (FleetHost("a/b", "left", {"pagecage_data_dir": "/x"}),))


def test_facts_that_a_look_reads_are_those_that_agents_tell(tmp_path: Path) -> None:
    assert set(FIT) <= set(read_facts(tmp_path, False))


def test_a_hosts_further_disks_are_those_of_the_inventory() -> None:
    variables = {"pagecage_data_dir": "/data", "pagecage_disks": {"wal": "/mnt/log"}}
    host = ReadyHost(FleetHost("left", "left", variables), FIT)
    assert host.remote.disks == {"wal": "/mnt/log"}
