"""Every driver on real limits: the same cage under each, and no figure if an engine drops a
limit.
"""

from __future__ import annotations

import pytest

from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import DRIVERS, Dataset, Trial, Workload
from pagecage.verdicts.evaluate import evaluate
from tests.builders.guest_runs import one_trial, run_in_guest
from tests.builders.known import known
from tests.builders.trial_runs import assert_read_back

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(2400)]
MIB = 1024 * 1024
# The customer's cage at a tenth, and a memory limit.
CAGE = Cage(
    "tenth",
    {
        "MemoryMax": 40 * MIB,
        "MemorySwapMax": 0,
        "IOReadBandwidthMax": 20_000_000,
        "IOReadIOPSMax": 500,
        "IOWriteBandwidthMax": 20_000_000,
        "IOWriteIOPSMax": 500,
    },
)
DEEP = Workload(
    "fio",
    ("rw=randread", "bs=4k", "ioengine=libaio", "direct=1", "iodepth=32", "time_based=1"),
    "fio",
)
READ = Workload(
    "pcread",
    (
        *("--file", "{file}", "--expect-sidecar", "{sidecar}", "--block-bytes", "4096", "--source"),
        *("mmap", "--max-seconds", "{max_seconds}", "--pattern", "sequential"),
    ),
)
WITHIN = 0.02
IN_ORDER = (
    *("systemd-scope", "docker", "docker-flags", "docker-api", "podman", "systemd-service"),
    "qemu-throttle",
)


def trial(driver: str, load: str) -> Trial:
    return one_trial(
        f"{driver}_{load}",
        treatment={"driver": driver, "load": load},
        workload=DEEP if load == "deep" else READ,
        cage=CAGE,
        cache="cold",
        dataset=Dataset(64 * MIB),
        read_ahead_kb=128,
        max_seconds=10.0,
        timeout_seconds=300.0,
        driver=driver,
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    trials = (trial(driver, load) for driver in IN_ORDER for load in ("deep", "order"))
    return run_in_guest(tmp_path_factory.mktemp("drivers"), "drivers-vm", *trials).last_records()


def rate(record: Record) -> float:
    return known(record.response["device_reads_per_second"])


def test_every_driver_is_tried() -> None:
    assert set(IN_ORDER) == set(DRIVERS)


@pytest.mark.parametrize("load", ["deep", "order"])
@pytest.mark.parametrize("driver", [name for name in IN_ORDER if name != "docker-flags"])
def test_it_runs_with_every_limit_where_it_must_be(
    records: dict[str, Record], driver: str, load: str
) -> None:
    record = records[f"{driver}_{load}"]
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.cage.driver)["name"] == driver
    assert_read_back(record)
    assert not [limit for limit in evaluate(record, []).limits if limit.verdict == "leaky"]


def test_a_container_in_our_slice_is_held_as_a_scope_is(records: dict[str, Record]) -> None:
    for driver in ("docker", "podman"):
        ours, theirs = rate(records["systemd-scope_deep"]), rate(records[f"{driver}_deep"])
        print(f"{driver}: {theirs:.1f} reads a second, a scope {ours:.1f}")
        assert theirs == pytest.approx(ours, rel=WITHIN)


def test_dockers_api_puts_its_limits_on_the_container(records: dict[str, Record]) -> None:
    record = records["docker-api_deep"]
    cage = record.cage
    assert "/docker-" in known(cage.driver_cgroup)
    assert known(cage.expected)["io.max.riops"] == "500"
    assert known(cage.ancestors)[known(cage.slice)]["io.max.riops"] == "max"
    assert rate(record) == pytest.approx(rate(records["systemd-scope_deep"]), rel=WITHIN)


@pytest.mark.parametrize("load", ["deep", "order"])
def test_a_limit_that_dockers_command_line_loses_gives_no_figure(
    records: dict[str, Record], load: str
) -> None:
    """Debian's 26.1.5 drops them; a version that does not has them at the container's own
    cgroup.
    """
    record = records[f"docker-flags_{load}"]
    if record.outcome == "ok":
        assert_read_back(record)
        assert known(record.cage.expected)["io.max.riops"] == "500"
        return
    assert record.outcome == "requirement_missed"
    assert "docker-flags lost them: io.max.r" in (record.error or "")
    assert record.response == {}


def test_qemu_holds_the_disk_from_outside(records: dict[str, Record]) -> None:
    record = records["qemu-throttle_deep"]
    assert known(record.cage.external)["read_back"]["IOReadIOPSMax"] == 500
    assert known(record.cage.read_back)["io.max.riops"] == "max"
    assert rate(record) == pytest.approx(500, rel=0.1)


def test_the_disk_is_let_go_of_after_the_trial(records: dict[str, Record]) -> None:
    """QEMU limits the second trial again; its calibration on the unlimited disk was not slowed."""
    assert records["qemu-throttle_order"].outcome == "ok"


def test_an_engine_is_told_in_the_record(records: dict[str, Record]) -> None:
    docker, podman = (
        known(records[name].cage.driver)["engine"] for name in ("docker_deep", "podman_deep")
    )
    assert docker["cgroup_driver"] == "systemd"
    assert docker["storage_driver"]
    assert podman["engine"] == "podman"
