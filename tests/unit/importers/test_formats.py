"""Limits in customers' files, and files that are refused."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pagecage.importers
from pagecage.cloud.catalogue import read_offers
from pagecage.errors import PagecageError
from pagecage.importers import document, formats
from pagecage.importers.result import ImportResult
from tests.builders.imports import FOLDER, fixture, read
from tests.tree import ROOT

PROVIDERS = read_offers(ROOT / "cgroups/catalogue")
OFFERED = {offer.name for provider in PROVIDERS for offer in provider.types}


def limits(found: ImportResult) -> dict[str, Any]:
    return {key: value for key, value in found.cage().items() if key != "about"}


def unsupported(found: ImportResult) -> str:
    return "\n".join(f"{item.what}: {item.reason}" for item in found.unsupported)


@pytest.mark.parametrize("name", ["kubectl-deployment.yaml", "kubectl-deployment.json"])
def test_kubectl(name: str) -> None:
    found = fixture(name)
    assert limits(found) == {"MemoryMax": "2GiB", "CPUQuota": 150}
    assert "container.resources.requests.cpu" in found.ignored


def test_a_pod_of_several_containers() -> None:
    with pytest.raises(PagecageError, match="2 containers: db, exporter") as caught:
        fixture("pod.yaml")
    assert caught.value.hint.endswith("--pick db")
    found = fixture("pod.yaml", "db")
    assert limits(found) == {"MemoryMax": "4GiB", "CPUQuota": 200}
    for word in (
        *("ephemeral-storage", "volume data", "describe-volumes", "volume run in memory"),
        "container exporter",
    ):
        assert word in unsupported(found)
    assert limits(fixture("pod.yaml", "exporter")) == {"MemoryMax": "128MB", "CPUQuota": 10}


def test_the_tighter_of_pod_and_container_counts() -> None:
    containers = [{"name": "a", "resources": {"limits": {"memory": "2Gi", "cpu": "250m"}}}]
    spec = {"resources": {"limits": {"memory": "1Gi", "cpu": 4}}, "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    for written in (pod, {"apiVersion": "v1", "kind": "List", "items": [pod]}):
        assert limits(read(json.dumps(written))) == {"MemoryMax": "1GiB", "CPUQuota": 25}


def test_an_object_of_kubernetes_without_a_pod_is_refused() -> None:
    with pytest.raises(PagecageError, match=r"does not contain a pod .*Service"):
        read("apiVersion: v1\nkind: Service\n")


def test_docker_inspect() -> None:
    found = fixture("docker-inspect.json")
    assert limits(found) == {
        "MemoryMax": "512MiB",
        "MemorySwapMax": "512MiB",
        "CPUQuota": 150,
        "IOReadBandwidthMax": "125MiB",
        "IOWriteBandwidthMax": "125MiB",
        "IOReadIOPSMax": 3000,
        "IOWriteIOPSMax": 3000,
    }
    for key in ("CpuShares", "CpusetCpus", "MemoryReservation", "PidsLimit"):
        assert f"HostConfig.{key}" in unsupported(found)
    assert "HostConfig.Binds" in found.ignored


def container(**host: Any) -> str:
    return json.dumps([{"Id": "a", "Name": "/a", "HostConfig": host}])


@pytest.mark.parametrize(
    ("swap", "expected"),
    [(2048, None), (3072, "1KiB"), (-1, "infinity"), (0, "2KiB")],
    ids=["off", "some", "no-limit", "not-set"],
)
def test_docker_counts_memory_and_swap_together(swap: int, expected: str | None) -> None:
    found = limits(read(container(Memory=2048, MemorySwap=swap)))
    assert found.get("MemorySwapMax") == expected


def test_docker_quota_and_period() -> None:
    assert limits(read(container(CpuQuota=50_000, CpuPeriod=200_000))) == {"CPUQuota": 25}
    assert limits(read(container(CpuQuota=50_000, CpuPeriod=0))) == {"CPUQuota": 50}
    assert limits(read(container(CpuQuota=-1))) == {}


def test_one_of_several_devices_is_picked_and_the_others_are_unsupported() -> None:
    rates = [{"Path": "/dev/sda", "Rate": 100}, {"Path": "/dev/sdb", "Rate": 200}]
    text = container(BlkioDeviceReadIOps=rates)
    with pytest.raises(PagecageError, match="2 limited devices: /dev/sda, /dev/sdb"):
        read(text)
    found = read(text, "/dev/sdb")
    assert limits(found) == {"IOReadIOPSMax": 200}
    assert "/dev/sda" in unsupported(found)


def test_compose() -> None:
    assert limits(fixture("compose.yaml", "db")) == {
        "MemoryMax": "512MiB",
        "CPUQuota": 150,
        "IOReadBandwidthMax": "12MiB",
        "IOReadIOPSMax": 120,
        "IOWriteBandwidthMax": "1MiB",
        "IOWriteIOPSMax": 30,
    }
    assert "cpu_shares" in unsupported(fixture("compose.yaml", "db"))
    assert "blkio_config.weight" in unsupported(fixture("compose.yaml", "db"))
    web = fixture("compose.yaml", "web")
    assert limits(web) == {"MemoryMax": "50MiB", "MemorySwapMax": "50MiB", "CPUQuota": 50}
    assert "pids" in unsupported(web)
    assert "reservations" in unsupported(web)
    worker = fixture("compose.yaml", "worker")
    assert limits(worker) == {}
    assert "docker compose config" in unsupported(worker)


UNIT_LIMITS = {
    "MemoryMax": "512MiB",
    "MemoryHigh": "400MiB",
    "CPUQuota": 150,
    "IOReadBandwidthMax": "20MB",
    "IOReadIOPSMax": 500,
    "IOWriteIOPSMax": 600,
}


def test_systemctl_cat() -> None:
    found = fixture("systemctl-cat.txt")
    assert limits(found) == UNIT_LIMITS
    assert "ExecStart" in found.ignored


def test_systemctl_show() -> None:
    """Of the same unit as in `systemctl cat`, properties that are not set are left out."""
    found = fixture("systemctl-show.txt")
    assert limits(found) == UNIT_LIMITS | {"MemorySwapMax": "infinity"}
    assert not found.unsupported


def test_a_unit_file_may_remove_values_and_join_lines() -> None:
    text = (
        "[Slice]\nMemoryMax=1G\nMemoryMax=\nIOReadIOPSMax=/dev/a \\\n# between\n"
        " 100\nIOReadIOPSMax=\nIOReadIOPSMax=/dev/b"
        " 7\nCPUQuota=20%\nMemorySwapMax=10%\n[Unit]\nMemoryMax=3G\n"
    )
    found = read(text)
    assert limits(found) == {"IOReadIOPSMax": 7, "CPUQuota": 20}
    assert "MemorySwapMax=10%" in unsupported(found)


def test_one_of_several_units_is_picked() -> None:
    text = "Id=a.service\nMemoryMax=1048576\n\nId=b.service\nMemoryMax=2097152\n"
    with pytest.raises(PagecageError, match=r"2 units: a\.service, b\.service"):
        read(text)
    assert limits(read(text, "b.service")) == {"MemoryMax": "2MiB"}


def test_a_deprecated_name_yields_to_the_new_one() -> None:
    assert limits(read("MemoryLimit=1048576\nMemoryMax=2097152\n")) == {"MemoryMax": "2MiB"}
    assert limits(read("MemoryLimit=1048576\nMemoryMax=infinity\n")) == {"MemoryMax": "1MiB"}


def test_aws_volumes() -> None:
    with pytest.raises(PagecageError, match="2 volumes"):
        fixture("describe-volumes.json")
    gp3 = fixture("describe-volumes.json", "vol-0000000000000001a")
    assert gp3.volume is not None
    bought = ["--size", "500GiB", "--iops", "6000", "--throughput", "250"]
    assert gp3.volume.command()[3:] == ["aws-gp3", *bought]
    assert "--instance" in unsupported(gp3)
    gp2 = fixture("describe-volumes.json", "vol-0000000000000001b")
    assert gp2.volume is not None
    words = gp2.volume.command()[3:]
    assert words == ["aws-gp2", "--size", "100GiB"], "its IOPS follow from its size"
    assert gp2.unsupported == ()


@pytest.mark.parametrize("kind", ["gp2", "gp3", "io1", "io2", "st1", "sc1"])
@pytest.mark.parametrize("iops", [3000, 100_000])
def test_every_type_of_aws_is_in_the_catalogue(kind: str, iops: int) -> None:
    volume = read(json.dumps({"Volumes": [{"VolumeType": kind, "Size": 200, "Iops": iops}]})).volume
    assert volume is not None
    assert volume.name in OFFERED
    assert volume.name.endswith("block-express") == (kind == "io2" and iops == 100_000)


def test_gcloud_disk() -> None:
    found = fixture("gcloud-disk.yaml")
    assert found.volume is not None
    assert found.volume.name in OFFERED
    bought = ["--size", "500GiB", "--iops", "6000", "--throughput", "300"]
    assert found.volume.command()[3:] == ["gcp-hyperdisk-balanced", *bought]
    assert "share" in unsupported(found)


def test_azure_disk() -> None:
    found = fixture("az-disk.json")
    assert limits(found) == {
        "IOReadBandwidthMax": "200MB",
        "IOReadIOPSMax": 5000,
        "IOWriteBandwidthMax": "200MB",
        "IOWriteIOPSMax": 5000,
        "accounting": {"combined": True},
    }
    assert "Premium_LRS" in found.about
    assert "machine" in unsupported(found)


def test_a_probe() -> None:
    found = fixture("probe.json")
    cage = limits(found)
    measured = {"IOReadBandwidthMax": "20MB", "IOReadIOPSMax": 500, "IOWriteIOPSMax": 500}
    assert cage | measured == cage
    assert cage["latency"]["read_us"] > 0
    assert "burst" not in cage


def probe_with(**changes: Any) -> ImportResult:
    tree = json.loads((FOLDER / "probe.json").read_text())
    phases = {phase["name"]: phase for phase in tree["phases"]}
    tree["summary"] |= changes.pop("summary", {})
    for name, change in changes.pop("phases", {}).items():
        phases[name] |= change
    return read(json.dumps(tree | changes))


def test_a_probes_burst_becomes_a_bucket() -> None:
    burst = {
        "seconds": 20.0,
        "burst_ios_per_second": 998.0,
        "base_ios_per_second": 101.0,
        "credits_at_least": 17_940.0,
        "burst_bytes_per_second": 1.0,
        "base_bytes_per_second": 1.0,
        "credits_at_least_bytes": 1.0,
    }
    found = probe_with(
        summary={"random_read_ios_per_second": 101.0},
        phases={"random_read_sustained": {"burst": burst}},
    )
    assert limits(found)["IOReadIOPSMax"] == 100
    assert limits(found)["burst"] == {"iops": {"rate": 1000, "credits": 18_000}}


def test_memory_limits_of_the_cgroup_are_those_of_the_cage() -> None:
    found = probe_with(cgroup={"memory_max_bytes": 2**30, "memory_high_bytes": 2**29})
    assert limits(found) | {"MemoryMax": "1GiB", "MemoryHigh": "512MiB"} == limits(found)
    assert "memory.high" not in unsupported(found)


def test_a_cap_of_the_cgroup_is_exact_and_a_measured_one_is_rounded() -> None:
    caps = {"rbps": 123_456_789, "wbps": None, "riops": 1234, "wiops": 1234}
    measured = {
        "sequential_read_bytes_per_second": 123e6,
        "sequential_write_bytes_per_second": 49.7e6,
        "random_read_ios_per_second": 1230.0,
        "random_write_ios_per_second": 497.0,
    }
    cgroup = {"version": 2, "io": caps, "cpu_quota_percent": 12.5}
    cage = limits(probe_with(summary=measured, cgroup=cgroup))
    assert cage["IOReadBandwidthMax"] == "123456789B"
    assert cage["IOReadIOPSMax"] == 1234
    assert cage["IOWriteBandwidthMax"] == "50MB"
    assert cage["IOWriteIOPSMax"] == 500, "the disk was slower than the cap"
    assert cage["CPUQuota"] == 12


def test_a_figure_that_was_not_proven_is_not_a_limit() -> None:
    found = probe_with(
        complete=False,
        summary={"random_read_ios_per_second": None},
        phases={"random_read_sustained": {"ios_per_second": None, "reason": "memory answered"}},
    )
    assert "IOReadIOPSMax" not in limits(found)
    assert "IOReadIOPSMax: memory answered" in unsupported(found)
    assert "interrupted" in unsupported(found)


WRONG_PROBE = (
    '{"type": "probe", "probe_version": 1, "summary": {"random_read_ios_per_second": "x"}}'
)
TENFOLD = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]


def test_a_probe_of_another_version_is_refused() -> None:
    with pytest.raises(PagecageError, match="version 9"):
        probe_with(probe_version=9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ('{"a": 1,\n "b": }', "line 2"),
        ("a:\n  - b\n c: [", "line"),
        ("{}", "not a file that can be imported"),
        ("[]", "not a file that can be imported"),
        ("hello", "not a file that can be imported"),
        ("MemoryCat=3\n", "not a file that can be imported"),
        ('{"services": {"a": 1}}', "not a file that can be imported"),
        ('[{"Id": "a", "HostConfig": {"Memory": "much"}}]', "has a known format, but"),
        ('{"Volumes": [{"VolumeType": "gp9", "Size": 1}]}', "gp9"),
        ("[Service]\nMemoryMax=lots\n", "lots"),
        ("[Service]\nIOReadIOPSMax=500\n", "has no device"),
        (WRONG_PROBE, "has a known format, but"),
        ("[" * 100_000, "JSON"),
        ("a: &a [*a]\nb: *b\n", "YAML"),
        ("services: &a {db: *a}\n", "refers to itself"),
        ("\n".join(["a0: &a0 [x]", *TENFOLD]), "too many values"),
    ],
)
def test_bad_input_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(PagecageError) as caught:
        read(text)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


KEYS = [
    *(
        *("HostConfig", "Id", "Memory", "BlkioDeviceReadBps", "services", "mem_limit", "deploy"),
        *("resources", "limits"),
    ),
    *(
        *("memory", "cpu", "apiVersion", "kind", "spec", "items", "containers", "Volumes"),
        *("VolumeType", "Size"),
    ),
    *("sizeGb", "type", "sku", "diskSizeGb", "summary", "probe_version", "phases", "a"),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
)


@given(TREES)
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    with contextlib.suppress(PagecageError):
        read(json.dumps(tree))


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from pagecage.importers.document import table\n"
        "from pagecage.importers.result import ImportedLimit, Importer, ImportResult\n"
        "def read(document, selection):\n"
        "    limit = ImportedLimit('MemoryMax', document.tree['mine'], 'mine')\n"
        "    return ImportResult('mine', 'mine', (limit,))\n"
        "IMPORTERS = (Importer(lambda document: 'mine' in table(document.tree), read),)\n"
    )
    paths = [*pagecage.importers.__path__, str(tmp_path)]
    monkeypatch.setattr(pagecage.importers, "__path__", paths)
    formats.importers.cache_clear()
    try:
        assert limits(read('{"mine": "1GiB"}')) == {"MemoryMax": "1GiB"}
    finally:
        formats.importers.cache_clear()
        sys.modules.pop("pagecage.importers.mine", None)


def test_a_file_above_the_bound_is_refused() -> None:
    assert document.MOST_BYTES == 64 << 20
    with pytest.raises(PagecageError, match="is larger than 64 MiB"):
        read("{" + " " * document.MOST_BYTES)
