"""memory.high of Memory QoS, compared with the tables of KEP-2570."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from pagecage.errors import PagecageError
from pagecage.importers.kubernetes import PAGE_BYTES, memory_high
from pagecage.importers.result import ImportResult
from tests.builders.imports import read

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
    whole = {"resources": {"limits": same, "requests": same}}
    assert high_of(read(pod(*HALF, **whole), memory_qos=0.5)) is None
    burstable = pod(*HALF, initContainers=[{"name": "init"}])
    assert high_of(read(burstable, memory_qos=0.5)) == "750MiB"


def test_a_container_without_a_limit_is_held_by_its_node() -> None:
    unlimited = ({"memory": "1Gi"}, {})
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
