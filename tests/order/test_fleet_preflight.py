"""Checks of every host before a fleet starts: reachable, suitable, similar."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.facts import read_facts
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.preflight import Preflight, ReadyHost, check_hosts, differences
from pagecage.fleet.provisioning import FleetHost
from tests.fake_host.rack import FIT, Rack
from tests.order.conftest import racked

HOSTS = ("fit", "unfitted", "foreign", "limitless", "greeting", "busy", "gone", "linked", "shared")
"""One host that can serve, and one for each reason why a host cannot."""


@contextmanager
def used_by_another(rack: Rack, *names: str) -> Iterator[None]:
    """Hold the lock of an agent on each of these hosts."""
    with ExitStack() as held:
        for name in names:
            fcntl.flock(
                held.enter_context((rack.top / name / "spool/lock").open("a")), fcntl.LOCK_EX
            )
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


def test_a_host_that_was_never_made_fit(found: Preflight) -> None:
    assert (
        "unfitted: it was never provisioned for experiments (no-data-dir)"
        in found.unfit["unfitted"].message
    )
    assert found.unfit["unfitted"].hint == "make provision HOST=unfitted"


def test_a_host_of_another_architecture(found: Preflight) -> None:
    assert "foreign is riscv64" in found.unfit["foreign"].message


def test_a_host_without_limits(found: Preflight) -> None:
    assert "the io controller is not available" in found.unfit["limitless"].message
    assert found.unfit["limitless"].hint == "make provision HOST=rack"


def test_a_host_that_greets_is_told_to_be_quiet(found: Preflight) -> None:
    assert found.unfit["greeting"].hint == "make sure that its login shell prints nothing"


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
    left, right = rack.seen()
    other = replace(
        right, facts={**FIT, "kernel": "6.1", "disk": {"filesystem": "xfs"}, "memory_bytes": 2**30}
    )
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
