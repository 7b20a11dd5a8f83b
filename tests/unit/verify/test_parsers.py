"""Any text in the kernel's files and any answer of a tool: limits or a sentence, nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.linux.cgroup import Cgroup
from pagecage.verify.comparison import (
    LimitInForce,
    limits_of,
    requested_of_container,
    requested_of_unit,
    shown_value,
    tightest,
)
from pagecage.verify.kernel import written_device
from pagecage.verify.target import (
    InspectedContainer,
    _blocks,
    container_id,
    manager_uid,
    shown_properties,
    unit_of,
)
from tests.builders.verified import VDA, VDB, VerifiedMachine

SAME_MACHINE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FILES = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "io.max")
RATES = st.integers(1, 2**63)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ("Memory", "MemorySwap", "NanoCpus", "CpuQuota", "CpuPeriod", "BlkioDeviceReadBps")
)
PROPERTIES = st.sampled_from(
    ("MemoryMax", "MemoryHigh", "MemorySwapMax", "CPUQuotaPerSecUSec", "IOReadIOPSMax", "Id")
)
VALUES = st.text(max_size=12) | st.integers().map(str) | st.integers().map("/dev/vdb {}".format)


@SAME_MACHINE
@given(texts=st.tuples(*(st.text(max_size=30) for _ in FILES)))
def test_any_text_is_read(tmp_path: Path, texts: tuple[str, ...]) -> None:
    for name, text in zip(FILES, texts, strict=True):
        (tmp_path / name).write_text(text, errors="replace")
    for limit in limits_of(Cgroup(unified=tmp_path)):
        assert limit.value >= 0
        assert shown_value(limit.name, limit.value)


@SAME_MACHINE
@given(rbps=RATES | st.none(), wiops=RATES | st.none(), memory=RATES, quota=RATES)
def test_what_the_kernel_writes_is_what_is_read(
    tmp_path: Path, rbps: int | None, wiops: int | None, memory: int, quota: int
) -> None:
    (tmp_path / "io.max").write_text(
        f"{VDA} rbps={rbps or 'max'} wbps=max riops=max wiops={wiops or 'max'}\n"
    )
    (tmp_path / "memory.max").write_text(f"{memory}\n")
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    found = {limit.name: limit.value for limit in limits_of(Cgroup(unified=tmp_path))}
    expected = {"IOReadBandwidthMax": rbps, "IOWriteIOPSMax": wiops, "MemoryMax": memory}
    expected = {name: value for name, value in expected.items() if value is not None}
    assert found == {**expected, "CPUQuota": 100 * quota / 100000}


@given(values=st.lists(st.tuples(st.sampled_from((VDA, VDB)), RATES)))
def test_the_tightest_of_each_disk(values: list[tuple[str, int]]) -> None:
    limits = [
        LimitInForce("IOReadIOPSMax", value, Cgroup(unified=Path(str(n))), Path("io.max"), disk)
        for n, (disk, value) in enumerate(values)
    ]
    found = {limit.maj_min: limit for limit in tightest(limits)}
    for disk, limit in found.items():
        same = [one for one in limits if one.maj_min == disk]
        assert limit == min(same, key=lambda one: one.value)
    assert found.keys() == {disk for disk, _ in values}


@given(config=st.dictionaries(KEYS, JSON, max_size=4))
def test_any_answer_of_an_engine(config: dict[str, object]) -> None:
    container = InspectedContainer("docker", "it", 1, config)
    with suppress(PagecageError):
        for one in requested_of_container(container, Cgroup()):
            assert one.value >= 0


@given(pairs=st.lists(st.tuples(PROPERTIES, VALUES), max_size=5))
def test_any_answer_of_systemctl(pairs: list[tuple[str, str]]) -> None:
    for lines in _blocks("\n".join(f"{key}={value}" for key, value in pairs)):
        with suppress(PagecageError):
            for one in requested_of_unit(shown_properties(lines), Cgroup(), "a.service"):
                assert one.value >= 0


@SAME_MACHINE
@given(path=st.text(max_size=20).map(lambda text: f"/{text}"))
def test_any_path_of_a_device(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    machine = VerifiedMachine(tmp_path_factory.mktemp("machine"))
    machine.make()
    found = written_device(path, machine.kernel)
    assert bool(found.disks) or bool(found.problem)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"docker-{'a' * 64}.scope", "a" * 64),
        (f"libpod-{'0' * 64}.scope", "0" * 64),
        ("b" * 64, "b" * 64),
        (f"libpod-conmon-{'0' * 64}.scope", None),
        (f"docker-{'a' * 63}.scope", None),
        ("web.service", None),
    ],
)
def test_containers_are_known_by_their_cgroup(name: str, found: str | None) -> None:
    assert container_id(Path("/cgroup/system.slice", name)) == found


@pytest.mark.parametrize(
    ("path", "unit", "uid"),
    [
        ("system.slice/web.service", "web.service", None),
        ("user.slice/user-1000.slice/user@1000.service", "user@1000.service", None),
        ("user.slice/user-1000.slice/user@1000.service/app.slice", "app.slice", 1000),
        ("system.slice/docker-a.scope/init", None, None),
    ],
)
def test_units_are_known_by_their_cgroup(path: str, unit: str | None, uid: int | None) -> None:
    assert unit_of(Path("/sys/fs/cgroup", path)) == unit
    assert manager_uid(Path("/sys/fs/cgroup", path)) == uid
