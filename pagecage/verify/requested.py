"""The limits that a container or a unit was given, as its engine or systemd repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, PagecageError
from pagecage.importers.docker import block_limits as docker_blocks
from pagecage.importers.docker import cpu_limits, memory_limits
from pagecage.importers.quantities import systemd_bytes
from pagecage.importers.result import BlockLimit, ImportedLimit
from pagecage.importers.systemd import UnitProperties, single_limits
from pagecage.importers.systemd import block_limits as systemd_blocks
from pagecage.units import parse_size_bytes
from pagecage.verify.engines import ENGINES, InspectedContainer

_NO_LIMIT = "infinity"
_MEMORY_BASE = 1024


@dataclass(frozen=True)
class RequestedLimit:
    """A limit that was asked for.

    `by` is the engine or the unit, `device` the path as it was written, and `cgroup` the one that
    should have the limit.
    """

    by: str
    name: str
    value: float
    cgroup: Path
    basis: str
    device: str | None = None


def requested_of_container(
    container: InspectedContainer, cgroup: Path
) -> tuple[RequestedLimit, ...]:
    """Return the limits of a container.

    Raises PagecageError if the engine's answer has values of another kind.
    """
    by, config = ENGINES[container.engine], container.host_config
    try:
        singles = [*memory_limits(config), *cpu_limits(config), *_no_swap(config)]
        blocks = [limit for limit in docker_blocks(config) if limit.rate > 0]
        return tuple(_requested(by, cgroup, singles, blocks))
    except (PagecageError, *UNREADABLE):
        message = f"the limits of {container.name} in `{container.engine} inspect` cannot be read"
        raise PagecageError(message, f"{container.engine} inspect {container.name}") from None


def _no_swap(config: dict[str, Any]) -> Iterator[ImportedLimit]:
    """Yield the limit of a container whose memory and swap together are its memory."""
    memory, total = int(config.get("Memory") or 0), int(config.get("MemorySwap") or 0)
    if 0 < memory == total:
        yield ImportedLimit("MemorySwapMax", "0B", f"HostConfig.MemorySwap = {total}")


def requested_of_unit(properties: UnitProperties, cgroup: Path) -> tuple[RequestedLimit, ...]:
    """Return the limits of a unit.

    Raises PagecageError if a value cannot be read.
    """
    singles, _ = single_limits(properties.single)
    singles += _memory_high(properties)
    if properties.single.get("MemorySwapMax") == "0":
        singles.append(ImportedLimit("MemorySwapMax", "0B", "MemorySwapMax=0"))
    blocks = [limit for limit in systemd_blocks(properties) if limit.rate > 0]
    return tuple(_requested(cgroup.name, cgroup, singles, blocks))


def _memory_high(properties: UnitProperties) -> Iterator[ImportedLimit]:
    written = properties.single.get("MemoryHigh", "")
    size = systemd_bytes(written, _MEMORY_BASE) if written and "%" not in written else None
    if size is not None:
        yield ImportedLimit("MemoryHigh", f"{size}B", f"MemoryHigh={written}")


def _requested(
    by: str, cgroup: Path, singles: Iterable[ImportedLimit], blocks: Iterable[BlockLimit]
) -> Iterator[RequestedLimit]:
    for single in singles:
        if single.value != _NO_LIMIT:
            yield RequestedLimit(by, single.key, _number(single.value), cgroup, single.basis)
    for block in blocks:
        yield RequestedLimit(by, block.key, block.rate, cgroup, block.basis, block.device)


def _number(value: Any) -> float:
    return parse_size_bytes(value) if isinstance(value, str) else float(value)
