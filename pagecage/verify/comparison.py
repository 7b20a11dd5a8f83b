"""Requested limits compared with the limits in force."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import UNREADABLE, PagecageError
from pagecage.importers.docker import block_limits as docker_blocks
from pagecage.importers.docker import cpu_limits, memory_limits
from pagecage.importers.result import BlockLimit, ImportedLimit
from pagecage.importers.systemd import UnitProperties, single_limits
from pagecage.importers.systemd import block_limits as systemd_blocks
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import LimitFiles, limit_file, limited_disks
from pagecage.model.cage import IO_MAX_KEY, MEMORY_FILE
from pagecage.units import KIB, exact_size, format_bytes, parse_size_bytes
from pagecage.verify.kernel import (
    IDLE_BYTES,
    KernelTrees,
    WrittenDevice,
    directories_around,
    disk_name,
    group_at,
    used_disks,
    written_device,
)
from pagecage.verify.target import (
    ENGINES,
    InspectedContainer,
    Target,
    container_id,
    inspect,
    manager_uid,
    requested_properties,
    typed_limits,
)

NAMES = (*IO_MAX_KEY, *MEMORY_FILE, "CPUQuota")
_NOT_SHARED = ("memory.swappiness", "swaps")


@dataclass(frozen=True)
class LimitInForce:
    """A limit in a file of one cgroup, under the name of systemd's property.

    `value` is in bytes, bytes per second, I/Os per second, or percent of one CPU. `maj_min` is the
    limited disk, None for memory and CPU.
    """

    name: str
    value: float
    cgroup: Cgroup
    file: Path
    maj_min: str | None = None


def shown_value(name: str, value: float) -> str:
    if name == "CPUQuota":
        return f"{value:g} %"
    if "IOPS" in name:
        return f"{value:,.0f}"
    return exact_size(round(value), " ") + ("/s" if "Bandwidth" in name else "")


def limits_of(cgroup: Cgroup) -> Iterator[LimitInForce]:
    """Yield the limits that are set on one cgroup itself. `max` is no limit."""
    files = LimitFiles(cgroup)
    try:
        held = files.read("")
        on_disks = {disk: files.read(disk) for disk in limited_disks(cgroup)}
    finally:
        files.close()
    found: list[tuple[str, float | None, str, str | None]] = [
        (name, _number(held.get(key, "")), key, None) for name, key in MEMORY_FILE.items()
    ]
    quota, _, period = held.get("cpu.max", "").partition(" ")
    if (share := _number(quota)) is not None and _number(period):
        found.append(("CPUQuota", 100 * share / int(period), "cpu.max", None))
    keys = [(name, f"io.max.{key}") for name, key in IO_MAX_KEY.items()]
    for maj_min, limits in on_disks.items():
        found += [(name, _number(limits.get(key, "")), key, maj_min) for name, key in keys]
    for name, value, key, disk in found:
        if value is not None and (file := limit_file(cgroup, key)) is not None:
            yield LimitInForce(name, value, cgroup, file, disk)


def _number(text: str) -> float | None:
    return int(text) if text.isascii() and text.isdigit() else None


def all_limits(cgroups: Sequence[Cgroup]) -> list[LimitInForce]:
    """Return the limits of a cgroup and of those whose limits hold for it, in their order.

    In version 1 the swappiness of a parent, or a machine without swap, is no limit of the parent
    (mm/vmscan.c, mem_cgroup_swappiness).
    """
    return [
        limit
        for number, cgroup in enumerate(cgroups)
        for limit in limits_of(cgroup)
        if number == 0 or limit.file.name not in _NOT_SHARED
    ]


def tightest(limits: Iterable[LimitInForce]) -> list[LimitInForce]:
    """Return the effective limit of each name and disk; of equal limits the nearest."""
    found: dict[tuple[str, str | None], LimitInForce] = {}
    for limit in limits:
        best = found.setdefault((limit.name, limit.maj_min), limit)
        if limit.value < best.value:
            found[limit.name, limit.maj_min] = limit
    return sorted(found.values(), key=lambda limit: (NAMES.index(limit.name), limit.maj_min or ""))


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
    """Return its limits and those of a client's command line, or raise PagecageError."""
    by, config = ENGINES[container.engine], container.host_config
    try:
        singles = [*memory_limits(config), *cpu_limits(config)]
        memory, total = int(config.get("Memory") or 0), int(config.get("MemorySwap") or 0)
        if 0 < memory == total:  # memory and swap together are its memory
            singles += [ImportedLimit("MemorySwapMax", "0B", f"HostConfig.MemorySwap = {total}")]
        return tuple(_requested(by, cgroup, singles, [*docker_blocks(config), *typed]))
    except (PagecageError, *UNREADABLE):
        message = f"the limits of {container.name} in `{container.engine} inspect` cannot be read"
        raise PagecageError(message, f"{container.engine} inspect {container.name}") from None


def requested_of_unit(
    properties: UnitProperties, cgroup: Cgroup, by: str
) -> tuple[RequestedLimit, ...]:
    """Return the limits of a unit by its name. Raises PagecageError for an unreadable value."""
    singles, _ = single_limits(properties.single)
    if properties.single.get("MemorySwapMax") == "0":
        singles.append(ImportedLimit("MemorySwapMax", "0B", "MemorySwapMax=0"))
    return tuple(_requested(by, cgroup, singles, systemd_blocks(properties)))


def expected_limits(texts: Iterable[str], cgroup: Cgroup) -> tuple[RequestedLimit, ...]:
    """Return the user's, as in a unit file. Raises PagecageError for what is no limit."""
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
        if (value := single.value) != _NO_LIMIT:
            number = parse_size_bytes(value) if isinstance(value, str) else float(value)
            yield RequestedLimit(by, single.key, number, cgroup, single.basis)
    first: dict[tuple[str, str], BlockLimit] = {}
    for block in blocks:
        first.setdefault((block.key, block.device), block)
    for block in first.values():
        if block.rate > 0:
            yield RequestedLimit(by, block.key, block.rate, cgroup, block.basis, block.device)


Found = tuple[list[RequestedLimit], list[str]]
"""Limits, and a sentence for each source that cannot be read."""


def requested_limits(
    target: Target, kernel: KernelTrees, expected: Sequence[RequestedLimit]
) -> Found:
    around = directories_around(target.directory, kernel)
    places = {directory: identity for directory in around if (identity := container_id(directory))}
    if target.container and not places:
        places = {target.directory: target.container.name}
    found, told = _of_containers(target, places, kernel, expected)
    directories = [one for one in around if one not in places]
    managers = {uid for uid in map(manager_uid, directories) if uid is not None}
    told += [
        f"The units of user {uid}'s own systemd were not asked; that user may ask."
        for uid in sorted(managers - {os.getuid()})
    ]
    try:
        for directory, properties in requested_properties(directories).items():
            group = group_at(directory, target.cgroup, kernel)
            found += requested_of_unit(properties, group, directory.name)
    except PagecageError as error:
        told.append(f"What systemd was asked for is unknown: {error.message}.")
    return [*found, *expected], told


def _of_containers(
    target: Target,
    places: dict[Path, str],
    kernel: KernelTrees,
    expected: Sequence[RequestedLimit],
) -> Found:
    found: list[RequestedLimit] = []
    told: list[str] = []
    for directory, identity in places.items():
        try:
            container = target.container or inspect(identity)
            typed = typed_limits(container.name, kernel)
            group = group_at(directory, target.cgroup, kernel)
            found += requested_of_container(container, group, typed)
        except PagecageError as error:
            name = target.container.name if target.container else identity[:12]
            told.append(f"What the container {name} was given is unknown: {error.message}.")
        else:
            is_docker = container.engine == "docker"  # docs/CONTAINERS.md
            if is_docker and not any(limit.device for limit in (*found, *expected)):
                told.append(
                    f"{ENGINES[container.engine]} knows of no I/O limit of {container.name}. Its"
                    " command line (26.1.5) was seen to drop them without a message: compare with"
                    f" what was typed, {EXPECT_EXAMPLE}."
                )
    return found, told


FAILURES = ("weaker", "elsewhere", "lost")
STATES = ("in_force", "tighter", *FAILURES)
MUCH_MORE = 10
"""Least ratio of the I/O on two disks that makes the busier one the disk with the data."""
_FLAT = "cgroup v1 does not hold limits on I/O below the group that has them"
_ROUNDED = {"memory": 64 * KIB - 1, "CPUQuota": 1.0}
"""The kernel rounds memory down to a page of 64 KiB at most, and a quota has whole percents."""


@dataclass(frozen=True)
class LimitComparison:
    """A requested limit, the tightest in force at its place, and why it is a failure if it is."""

    requested: RequestedLimit
    found: LimitInForce | None
    state: str
    reason: str = ""

    @property
    def is_failure(self) -> bool:
        return self.state in FAILURES

    def sentence(self, kernel: KernelTrees) -> str:
        asked, found = self.requested, self.found
        where = f" of {asked.device}" if asked.device else ""
        line = f"{asked.name}{where}: {shown_value(asked.name, asked.value)} asked by {asked.by}"
        if found is None:
            return f"{line}, in force: none: LOST ({self.reason})"
        line += f", in force: {shown_value(found.name, found.value)}"
        if self.state == "tighter":
            return f"{line}, set on {kernel.shown(found.file.parent)}"
        word = {"weaker": "WEAKER", "elsewhere": "WRONG DISK"}.get(self.state)
        return f"{line}: {word} ({self.reason})" if word else line

    def to_json(self, kernel: KernelTrees) -> dict[str, object]:
        asked, found = self.requested, self.found
        return {
            "name": asked.name,
            "device": asked.device,
            "by": asked.by,
            "asked": asked.value,
            "said": asked.basis,
            "in_force": None if found is None else found.value,
            "file": None if found is None else str(found.file),
            "state": self.state,
            "sentence": self.sentence(kernel),
        }


def compare(
    requested: Sequence[RequestedLimit],
    cgroup: Cgroup,
    kernel: KernelTrees,
    on_disks: AbstractSet[str] | None,
) -> list[LimitComparison]:
    """Compare each requested limit with the limits of its cgroup and of the ancestors.

    `cgroup` is that of the program, whose I/O shows on which disks its data are. `on_disks` are
    the disks of its open files; None if they are not known.
    """
    used = used_disks(cgroup)
    return [_compare_one(one, cgroup, used, kernel, on_disks) for one in requested]


def _compare_one(
    asked: RequestedLimit,
    cgroup: Cgroup,
    used: Mapping[str, int],
    kernel: KernelTrees,
    on_disks: AbstractSet[str] | None,
) -> LimitComparison:
    place = asked.cgroup.blkio if asked.name in IO_MAX_KEY else None
    if place is not None and place != cgroup.blkio and place.is_dir():
        # In version 1 a limit on I/O that was asked for a parent does not hold.
        return LimitComparison(asked, None, "lost", _FLAT)
    device = WrittenDevice() if asked.device is None else written_device(asked.device, kernel)
    limits = all_limits((asked.cgroup, *ancestors(asked.cgroup, kernel.proc)))
    found = [
        one
        for one in tightest(limits)
        if one.name == asked.name and (asked.device is None or one.maj_min in device.disks)
    ]
    best = min(found, key=lambda limit: limit.value, default=None)
    if best is None:
        return LimitComparison(asked, None, "lost", device.problem or _loss_reason(asked))
    margin = _ROUNDED.get("memory" if asked.name in MEMORY_FILE else asked.name, 0.0)
    if abs(asked.value - best.value) > margin:
        if best.value < asked.value:
            return LimitComparison(asked, best, "tighter")
        reason = f"{_shown_file(best.file)} was changed, or set by another"
        return LimitComparison(asked, best, "weaker", reason)
    elsewhere = _data_elsewhere(asked, device, used, kernel, limits, on_disks)
    return LimitComparison(asked, best, "elsewhere" if elsewhere else "in_force", elsewhere)


def _loss_reason(asked: RequestedLimit) -> str:
    is_io = asked.name in IO_MAX_KEY
    key = f"io.max.{IO_MAX_KEY[asked.name]}" if is_io else MEMORY_FILE.get(asked.name, "cpu.max")
    file = limit_file(asked.cgroup, key)
    if file is None:
        return f"cgroup v1 has no {key}" if asked.cgroup.memory else f"no hierarchy has {key}"
    if file.name == "swaps":
        return "the kernel does not count swap (swapaccount=1 on its command line)"
    if file.exists():
        return f"{_shown_file(file)} has no such limit"
    return f"{_shown_file(file)} is missing: the controller is not enabled there"


def _shown_file(file: Path) -> str:
    place = file.parent
    return f"the container's {file.name}" if container_id(place) else f"{file.name} of {place.name}"


def _data_elsewhere(
    asked: RequestedLimit,
    device: WrittenDevice,
    used: Mapping[str, int],
    kernel: KernelTrees,
    limits: Sequence[LimitInForce],
    on_disks: AbstractSet[str] | None,
) -> str:
    """Return why the limited disk is not the one with the data; empty if it may be.

    The program must have no file open on the limited disk, and must have used it little beside a
    disk without such a limit: programs and libraries are read from somewhere.
    """
    if asked.device is None or on_disks is None or not on_disks.isdisjoint(device.disks):
        return ""
    there = max((used.get(maj_min, 0) for maj_min in device.disks), default=0)
    limited = {limit.maj_min for limit in limits if limit.name == asked.name}
    least = max(IDLE_BYTES, MUCH_MORE * there)
    others = [disk for disk, count in used.items() if count >= least and disk not in limited]
    if not others:
        return ""
    names = ", ".join(disk_name(maj_min, kernel) for maj_min in others)
    moved = format_bytes(max(used[maj_min] for maj_min in others))
    return f"its I/O, {moved} so far, is on {names}, which has no such limit"
