"""Volumes of pods, and Memory QoS."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagecage.cli.main import app
from pagecage.cloud.catalogue import read_offers
from pagecage.errors import PagecageError
from pagecage.importers.kubernetes import PAGE_BYTES, described_volume, memory_high
from pagecage.importers.result import DescribedVolume, ImportResult
from pagecage.units import GIB
from tests.builders.imports import FOLDER, read
from tests.tree import ROOT

NAME = "pod-with-volumes.yaml"
TEXT = (FOLDER / NAME).read_text()


def changed(kind: str, change: Any) -> str:
    """Return the fixture with one kind of object changed, or removed if `change` is None."""
    kept = []
    for one in yaml.safe_load_all(TEXT):
        if one["kind"] == kind:
            if change is None:
                continue
            change(one)
        kept.append(one)
    return str(yaml.safe_dump_all(kept))


def reason(text: str, name: str, *picks: str) -> str:
    found = {one.what: one.reason for one in read(text, *picks).unsupported}
    return found[f"volume {name}"]


def test_a_claim_with_its_classes_is_the_pods_volume() -> None:
    found = read(TEXT, "data")
    assert found.volume == DescribedVolume("aws-gp3", 500 * GIB, 6000, 250)
    assert found.cage() == {
        "about": "The limits of a customer's pod, from kubectl get pod.",
        "MemoryMax": "4GiB",
        "CPUQuota": 200,
        "MemoryHigh": "3879728KiB",
    }
    assert reason(TEXT, "wal", "data") == "a cage limits one disk, and data was picked"


def test_without_an_attributes_class_the_storage_class_counts() -> None:
    def plain(claim: dict[str, Any]) -> None:
        claim["spec"].pop("volumeAttributesClassName", None)

    found = read(changed("PersistentVolumeClaim", plain), "data")
    assert found.volume == DescribedVolume("aws-gp3", 500 * GIB, 3000, 125)


def test_a_claim_without_a_class_has_the_default_one_and_sizes_are_rounded_up() -> None:
    assert read(TEXT, "wal").volume == DescribedVolume("aws-gp3", 94 * GIB)


def test_of_several_volumes_one_is_picked() -> None:
    with pytest.raises(PagecageError, match="the file has 2 volumes: data, wal"):
        read(TEXT)


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "StorageClass"])
def test_a_claim_or_class_that_is_missing_is_named(kind: str) -> None:
    text = changed(kind, None)
    assert read(text).volume is None
    assert "kubectl get pvc,storageclass" in reason(text, "data")


def test_without_the_attributes_class_the_limits_are_not_guessed() -> None:
    text = changed("VolumeAttributesClass", None)
    assert read(text).volume == DescribedVolume("aws-gp3", 94 * GIB), "the other volume"
    assert "kubectl get pvc" in reason(text, "data")


def test_a_volume_that_the_container_does_not_mount_is_not_its_volume() -> None:
    def unmounted(one: dict[str, Any]) -> None:
        one["spec"]["containers"][0]["volumeMounts"].pop()

    assert read(changed("Pod", unmounted)).volume == DescribedVolume(
        "aws-gp3", 500 * GIB, 6000, 250
    )


def test_a_stateful_set_has_templates_of_claims() -> None:
    pod, claim, _, *classes = yaml.safe_load_all(TEXT)
    pod["spec"]["volumes"] = []
    claim["metadata"]["name"] = "data"
    spec = {"template": {"spec": pod["spec"]}, "volumeClaimTemplates": [claim]}
    controller = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec}
    found = read(yaml.safe_dump_all([controller, *classes]))
    assert found.volume == DescribedVolume("aws-gp3", 500 * GIB, 6000, 250)


@pytest.mark.parametrize(
    ("driver", "parameters", "gib", "command"),
    [
        ("ebs.csi.aws.com", {}, 10, "aws-gp3 --size 10GiB"),
        (
            "ebs.csi.aws.com",
            {"Type": "io2", "iopsPerGB": "50"},
            100,
            "aws-io2 --size 100GiB --iops 5000",
        ),
        ("ebs.csi.aws.com", {"type": "gp2", "iops": "9"}, 100, "aws-gp2 --size 100GiB"),
        ("kubernetes.io/aws-ebs", {}, 100, "aws-gp2 --size 100GiB"),
        ("pd.csi.storage.gke.io", {"type": "pd-ssd"}, 128, "gcp-pd-ssd --size 128GiB"),
        (
            "pd.csi.storage.gke.io",
            {
                "type": "hyperdisk-balanced",
                "provisioned-throughput-on-create": "250Mi",
                "provisioned-iops-on-create": "7000",
            },
            64,
            "gcp-hyperdisk-balanced --size 64GiB --iops 7000 --throughput 250",
        ),
        ("disk.csi.azure.com", {}, 128, "azure-standard-ssd --size 128GiB"),
        ("disk.csi.azure.com", {"skuName": "Premium_ZRS"}, 128, "azure-premium-ssd --size 128GiB"),
        (
            "disk.csi.azure.com",
            {"skuname": "Premium_LRS", "enableBursting": "true"},
            1024,
            "azure-premium-ssd-on-demand --size 1TiB",
        ),
        (
            "disk.csi.azure.com",
            {"skuName": "UltraSSD_LRS", "DiskIOPSReadWrite": "2000", "DiskMBpsReadWrite": "320"},
            512,
            "azure-ultra --size 512GiB --iops 2000 --throughput 320",
        ),
    ],
)
def test_drivers(driver: str, parameters: dict[str, str], gib: int, command: str) -> None:
    volume = described_volume(driver, parameters, gib * GIB)
    assert volume.command() == ["pagecage", "cage", "show", *command.split()]
    providers = read_offers(ROOT / "cgroups/catalogue")
    assert volume.name in {offer.name for provider in providers for offer in provider.types}


def test_the_cache_of_a_machine_of_azure_is_named_as_lost() -> None:
    def azure(one: dict[str, Any]) -> None:
        one |= {"provisioner": "disk.csi.azure.com", "parameters": {"skuName": "Premium_LRS"}}

    text = changed("StorageClass", azure)
    found = read(text, "wal")
    assert found.volume == DescribedVolume("azure-premium-ssd", 94 * GIB)
    assert "cachingMode = ReadOnly" in [one.what for one in found.unsupported]


def test_a_driver_without_known_limits_is_refused() -> None:
    def nfs(one: dict[str, Any]) -> None:
        one["provisioner"] = "nfs.csi.k8s.io"

    with pytest.raises(PagecageError, match=r"the storage driver 'nfs\.csi\.k8s\.io' states no"):
        read(changed("StorageClass", nfs), "data")


def test_a_saved_cage_has_the_limits_of_the_pod_and_of_its_volume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pagecage.cli.cage.CAGES", tmp_path)
    words = ["cage", "import", str(FOLDER / NAME), "--pick", "data", "--save", "orders"]
    assert app(words, exit_on_error=False, result_action="return_value") == 0
    saved = (tmp_path / "orders.toml").read_text()
    for line in ('MemoryHigh = "3879728KiB"', 'MemoryMax = "4GiB"', "IOReadIOPSMax = 6000"):
        assert f"\n{line}\n" in saved
    assert 'type = "gp3"' in saved


MIB = 1 << 20
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "featureGates": {"MemoryQoS": True},
}
NODE = {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": {"memory": "8Gi"}}}


@pytest.mark.parametrize(
    ("request_mib", "factor", "high_mib"),
    [
        *((0, "0.9", 900), (100, "0.9", 910), (500, "0.9", 950), (900, "0.9", 990)),
        *((1000, "0.9", None), (500, "0.6", 800), (800, "0.6", 920), (1000, "0.6", None)),
        *((500, "0.8", 900), (850, "0.8", 970), (500, "0.4", 700)),
    ],
)
def test_the_tables_of_the_proposal(request_mib: int, factor: str, high_mib: int | None) -> None:
    high = memory_high(Decimal(request_mib * MIB), Decimal(1000 * MIB), Decimal(factor))
    assert high == (high_mib and high_mib * MIB)


def test_it_is_a_multiple_of_a_page() -> None:
    high = memory_high(Decimal(1), Decimal(10**9 + 1), Decimal("0.9"))
    assert high is not None
    assert high % PAGE_BYTES == 0


def pod(
    requests: dict[str, str], limits: dict[str, str], *more: dict[str, Any], **spec: Any
) -> str:
    """Return a file with a pod of one container, and further objects."""
    resources = {"requests": requests, "limits": limits}
    containers = [{"name": "app", "resources": resources}]
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers, **spec}},
        *more,
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def high_of(found: ImportResult) -> object:
    return found.cage().get("MemoryHigh")


def reasons(found: ImportResult) -> list[str]:
    return [one.reason for one in found.unsupported if "Memory QoS" in one.what]


HALF = ({"memory": "500Mi"}, {"memory": "1000Mi"})


def test_the_option_or_the_kubelets_configuration_turns_it_on() -> None:
    assert high_of(read(pod(*HALF), memory_qos=0.9)) == "950MiB"
    assert high_of(read(pod(*HALF, KUBELET))) == "950MiB"
    slower = {**KUBELET, "memoryThrottlingFactor": 0.6}
    assert high_of(read(pod(*HALF, slower))) == "800MiB"
    assert high_of(read(pod(*HALF, slower), memory_qos=0.8)) == "900MiB", "the user decides"


def test_without_either_it_is_said_that_it_is_not_known() -> None:
    for kubelet in ((), ({**KUBELET, "featureGates": {"MemoryQoS": False}},)):
        found = read(pod(*HALF, *kubelet))
        assert high_of(found) is None
        assert reasons(found) == [
            "only the kubelets' configuration states it; if it is on: --memory-qos 0.9"
        ]


def test_a_guaranteed_pod_has_none() -> None:
    same = {"cpu": "1", "memory": "1Gi"}
    found = read(pod(same, same), memory_qos=0.5)
    assert (high_of(found), reasons(found)) == (None, [])
    assert high_of(read(pod({}, same), memory_qos=0.5)) is None, "requests default to limits"
    whole = pod(*HALF, resources={"limits": same, "requests": same})
    assert high_of(read(whole, memory_qos=0.5)) is None
    burstable = pod(*HALF, initContainers=[{"name": "init"}])
    assert high_of(read(burstable, memory_qos=0.5)) == "750MiB"


def test_a_container_without_a_limit_is_held_by_its_node() -> None:
    unlimited: tuple[dict[str, str], dict[str, str]] = ({"memory": "1Gi"}, {})
    found = read(pod(*unlimited), memory_qos=0.5)
    assert (high_of(found), len(reasons(found))) == (None, 1)
    assert "add kubectl get node" in reasons(found)[0]
    found = read(pod(*unlimited, NODE), memory_qos=0.5)
    assert high_of(found) == "4.5GiB"
    assert "allocatable memory of the node 8GiB" in found.limits[0].basis


@pytest.mark.parametrize("factor", [0, -1, 1.5])
def test_a_factor_that_the_kubelet_refuses(factor: float) -> None:
    with pytest.raises(PagecageError, match="is not a memory throttling factor"):
        read(pod(*HALF, {**KUBELET, "memoryThrottlingFactor": factor or -0.1}))
