"""The limits that a container or a unit was given, as its engine or systemd repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.agent.system.cgroup import Cgroup
from pagecage.errors import UNREADABLE, PagecageError
from pagecage.importers.docker import block_limits as docker_blocks
from pagecage.importers.docker import cpu_limits, memory_limits
from pagecage.importers.result import BlockLimit, ImportedLimit
from pagecage.importers.systemd import UnitProperties, single_limits
from pagecage.importers.systemd import block_limits as systemd_blocks
from pagecage.units import parse_size_bytes
from pagecage.verify.engines import ENGINES, InspectedContainer
from pagecage.verify.in_force import NAMES

EXPECT = "--expect"
EXPECT_EXAMPLE = f"{EXPECT} 'IOReadIOPSMax=/dev/vdb 500', or {EXPECT} MemoryMax=2G"
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
    cgroup: Cgroup
    basis: str
    device: str | None = None


def requested_of_container(
    container: InspectedContainer, cgroup: Cgroup, typed: Sequence[BlockLimit] = ()
) -> tuple[RequestedLimit, ...]:
    """Return the limits of a container; `typed` are those on a client's command line.

    Raises PagecageError if the engine's answer has values of another kind.
    """
    by, config = ENGINES[container.engine], container.host_config
    try:
        singles = [*memory_limits(config), *cpu_limits(config), *_no_swap(config)]
        blocks = _io_limits([*docker_blocks(config), *typed])
        return tuple(_requested(by, cgroup, singles, blocks))
    except (PagecageError, *UNREADABLE):
        message = f"the limits of {container.name} in `{container.engine} inspect` cannot be read"
        raise PagecageError(message, f"{container.engine} inspect {container.name}") from None


def _io_limits(limits: Iterable[BlockLimit]) -> list[BlockLimit]:
    """Return the first limit of each kind and device; a rate of 0 is none."""
    first: dict[tuple[str, str], BlockLimit] = {}
    for limit in limits:
        first.setdefault((limit.key, limit.device), limit)
    return [limit for limit in first.values() if limit.rate > 0]


def _no_swap(config: dict[str, Any]) -> Iterator[ImportedLimit]:
    """Yield the limit of a container whose memory and swap together are its memory."""
    memory, total = int(config.get("Memory") or 0), int(config.get("MemorySwap") or 0)
    if 0 < memory == total:
        yield ImportedLimit("MemorySwapMax", "0B", f"HostConfig.MemorySwap = {total}")


def requested_of_unit(
    properties: UnitProperties, cgroup: Cgroup, by: str
) -> tuple[RequestedLimit, ...]:
    """Return the limits of a unit; `by` is its name.

    Raises PagecageError if a value cannot be read.
    """
    singles, _ = single_limits(properties.single)
    if properties.single.get("MemorySwapMax") == "0":
        singles.append(ImportedLimit("MemorySwapMax", "0B", "MemorySwapMax=0"))
    blocks = _io_limits(systemd_blocks(properties))
    return tuple(_requested(by, cgroup, singles, blocks))


def expected_limits(texts: Iterable[str], cgroup: Cgroup) -> tuple[RequestedLimit, ...]:
    """Return the limits that the user expects, written as in a unit file.

    Raises PagecageError for a text that is not a limit.
    """
    found: list[RequestedLimit] = []
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        properties = UnitProperties()
        try:
            properties.assign(name, value)
            limits = requested_of_unit(properties, cgroup, EXPECT) if name in NAMES else ()
        except PagecageError:
            limits = ()
        if not limits:
            raise PagecageError(f"{EXPECT}: {text!r} is not a limit", EXPECT_EXAMPLE)
        found += limits
    return tuple(found)


def _requested(
    by: str, cgroup: Cgroup, singles: Iterable[ImportedLimit], blocks: Iterable[BlockLimit]
) -> Iterator[RequestedLimit]:
    for single in singles:
        if single.value != _NO_LIMIT:
            yield RequestedLimit(by, single.key, _number(single.value), cgroup, single.basis)
    for block in blocks:
        yield RequestedLimit(by, block.key, block.rate, cgroup, block.basis, block.device)


def _number(value: Any) -> float:
    return parse_size_bytes(value) if isinstance(value, str) else float(value)
