"""Services of a compose file, with their environment files, volumes and limits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError, nearest
from pagecage.importers.document import (
    Document,
    Table,
    cpu_percent,
    docker_bytes,
    kubernetes_quantity,
    rows,
    table,
)
from pagecage.importers.result import (
    BANDWIDTH,
    CPU_LIST,
    NO_SUCH_LIMIT,
    PROCESSES,
    PROTECTION,
    WEIGHT,
    BlockLimit,
    ImportedLimit,
    Importer,
    ImportResult,
    Selection,
    UnsupportedLimit,
    limits_of_one_device,
    quota_limit,
    swap_limit,
)
from pagecage.units import exact_size

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*(?:=\s*(?P<value>.*))?")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?")
_COMMENT = re.compile(r"\s#.*$")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def compose_variables(text: str, name: str) -> Iterator[str]:
    """Yield NAME=VALUE, or NAME without a value, for each variable of a file.

    Raises PagecageError for a line that is none, and for a value that contains another variable.
    """
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if not match:
            reason = f"{name}: line {number} is not NAME=VALUE"
            raise PagecageError(reason, f"sed -n {number}p {name}")
        written = match["value"]
        if written is None:
            yield match["name"]
            continue
        quoted = _QUOTED.fullmatch(written)
        value = quoted["text"] if quoted else _COMMENT.sub("", f" {written}").strip()
        if not quoted or quoted["quote"] == '"':
            if quoted:
                value = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), value)
            if "$" in value:
                reason = f"{name}: line {number} contains a variable"
                raise PagecageError(reason, "write its value, in single quotes")
        yield f"{match['name']}={value}"


_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$)")
_USED = (
    *("image", "command", "entrypoint", "environment", "env_file", "volumes", "ports"),
    *("working_dir", "user"),
)
_WITHOUT_EFFECT = (
    *("deploy", "mem_limit", "memswap_limit", "cpus", "cpu_quota", "cpu_period", "blkio_config"),
    *("mem_reservation", "mem_swappiness", "cpu_shares", "cpuset", "pids_limit", "build"),
    *("container_name", "healthcheck", "restart", "labels", "logging", "expose", "pull_policy"),
    *("hostname", "networks", "profiles", "depends_on", "links", "stop_grace_period"),
    *("oom_kill_disable", "cpu_rt_runtime"),
)
"""Keys that are limits, which the import of limits reads, or that change no file and no time."""


@dataclass(frozen=True)
class ServiceVolume:
    """A bind mount of a service; the source is spelled as in the file."""

    source: str
    target: str
    is_read_only: bool

    @property
    def text(self) -> str:
        """The mount in the notation of `docker run --volume`."""
        return f"{self.source}:{self.target}{':ro' if self.is_read_only else ''}"


@dataclass(frozen=True)
class ComposeService:
    """A service. `entrypoint` is None if the file leaves the image's.

    `environment` has NAME=VALUE or NAME. `ports` are those inside the container. `notes` are
    sentences about what a replay leaves out.
    """

    image: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] | None
    environment: tuple[str, ...]
    env_files: tuple[str, ...]
    volumes: tuple[ServiceVolume, ...]
    ports: tuple[int, ...]
    directory: str | None
    user: str | None
    notes: tuple[str, ...]


def read_service(document: Document, name: str, file: str) -> ComposeService:
    """Return one service. Raises PagecageError if there is none, or none that can be replayed."""
    services = table(document.tree, "services")
    if name not in services:
        fix = nearest(name, [str(one) for one in services]) if services else f"look into {file}"
        raise PagecageError(f"{file} has no service {name!r}", fix)
    service = table(services, name)
    _check(service, name, file)
    entrypoint = service.get("entrypoint")
    volumes, volume_notes = _volumes(service.get("volumes") or [], name)
    ports, port_notes = _ports(service.get("ports") or [])
    env_files, notes = [], []
    for entry in _list(service.get("env_file") or []):
        path = entry.get("path") if isinstance(entry, dict) else entry
        if not isinstance(path, str):
            reason = f"env_file of service {name} has no path"
            raise PagecageError(reason, "write it as env_file: PATH")
        env_files.append(path.replace("$$", "$"))
    if others := service.get("depends_on") or []:
        names = others if isinstance(others, dict) else _list(others)
        notes.append(f"depends_on: {', '.join(map(str, names))} is not started")
    if left := [key for key in service if key not in (*_USED, *_WITHOUT_EFFECT)]:
        notes.append(f"left out: {', '.join(map(str, left))}")
    return ComposeService(
        image=str(service["image"]).replace("$$", "$"),
        command=_words(service.get("command"), name, "command"),
        entrypoint=None if entrypoint is None else _words(entrypoint, name, "entrypoint"),
        environment=tuple(_environment(service.get("environment") or {}, name)),
        env_files=tuple(env_files),
        volumes=tuple(volumes),
        ports=tuple(ports),
        directory=_text(service.get("working_dir")),
        user=_text(service.get("user")),
        notes=(*notes, *volume_notes, *port_notes),
    )


def _check(service: Table, name: str, file: str) -> None:
    if not isinstance(service.get("image"), str):
        fix = f"docker compose -f {shlex.quote(file)} build {name}, then --image with its name"
        raise PagecageError(f"service {name} of {file} names no image", fix)
    for key in _USED:
        for text in _texts(service.get(key)):
            if _VARIABLE.search(text):
                raise PagecageError(
                    f"{key} of service {name} contains a variable: {text!r}",
                    f"docker compose -f {shlex.quote(file)} config > resolved.yaml, and use that",
                )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _text(value: Any) -> str | None:
    return None if value is None else str(value).replace("$$", "$")


def _words(value: Any, name: str, key: str) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(word).replace("$$", "$") for word in value)
    try:
        return tuple(shlex.split(str(value or "").replace("$$", "$")))
    except ValueError as error:
        reason = f"{key} of service {name} is not a command: {error}"
        raise PagecageError(reason, "write it as a list") from None


def _environment(value: Any, name: str) -> Iterator[str]:
    """Yield variables of a list, or of a table, in which a null takes the value of this machine."""
    pairs = value.items() if isinstance(value, dict) else ((entry, None) for entry in _list(value))
    for key, item in pairs:
        if isinstance(item, dict | list) or not isinstance(key, str):
            reason = f"environment of service {name}: {key!r} is not a variable"
            raise PagecageError(reason, "write it as NAME: text")
        text = str(item).lower() if isinstance(item, bool) else str(item)
        yield (key if item is None else f"{key}={text}").replace("$$", "$")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _volumes(value: Any, name: str) -> tuple[list[ServiceVolume], list[str]]:
    volumes, notes = [], []
    for entry in _list(value):
        found: ServiceVolume | str
        if not isinstance(entry, dict):
            found = _short_volume(str(entry), name)
        else:
            source, target = str(entry.get("source")), str(entry.get("target"))
            match entry.get("type"):
                case "bind":
                    found = ServiceVolume(source, target, bool(entry.get("read_only")))
                case "volume" if "source" in entry:
                    found = _named_volume(source, target)
                case kind:
                    found = f"the {kind or 'anonymous volume'} at {target} is left out"
        if isinstance(found, str):
            notes.append(found)
        else:
            volumes.append(found)
    return volumes, notes


def _short_volume(text: str, name: str) -> ServiceVolume | str:
    source, *rest = text.replace("$$", "$").split(":")
    if not rest:
        return f"{source} is an anonymous volume, which is new and empty in every trial"
    if not source.startswith((".", "/", "~")):
        return _named_volume(source, rest[0])
    if len(rest) > 2:
        reason = f"volume {text!r} of service {name} is not a mount"
        raise PagecageError(reason, "HOST:CONTAINER:ro")
    return ServiceVolume(source, rest[0], "ro" in rest[1].split(",") if len(rest) == 2 else False)


def _named_volume(source: str, target: str) -> str:
    return (
        f"the engine keeps the files of volume {source}, so {target} has those of the image"
        f" (mount a copy: --volume ./{source}:{target})"
    )


def _ports(value: Any) -> tuple[list[int], list[str]]:
    """Return the ports inside the container, and a sentence for each that is mapped to another."""
    ports, notes = [], []
    for entry in _list(value):
        short = str(entry).removesuffix("/tcp").rpartition(":")
        host, own = short[0].rpartition(":")[2], short[2]
        if isinstance(entry, dict):
            host, own = str(entry.get("published") or ""), str(entry.get("target"))
        if not own.isdigit():
            notes.append(f"port {entry} is not published")
            continue
        ports.append(int(own))
        if host and host != own:
            notes.append(f"port {own} is not mapped to {host}: a replay uses the host's network")
    return ports, notes


_BLOCK = {
    "device_read_bps": "IOReadBandwidthMax",
    "device_write_bps": "IOWriteBandwidthMax",
    "device_read_iops": "IOReadIOPSMax",
    "device_write_iops": "IOWriteIOPSMax",
}
_UNSUPPORTED = {
    "cpu_shares": WEIGHT,
    "cpuset": CPU_LIST,
    "cpu_rt_runtime": "a cage has no real-time quota",
    "mem_reservation": PROTECTION,
    "mem_swappiness": "a cage leaves swappiness to the host",
    "oom_kill_disable": "the kernel kills a program that exceeds a cage's MemoryMax",
    "pids_limit": PROCESSES,
}
_SUPPORTED = (
    *("mem_limit", "memswap_limit", "cpus", "cpu_quota", "cpu_period", "blkio_config", "deploy"),
)
_REFERENCE = re.compile(r"\$\{?[A-Za-z_]")


def recognise(document: Document) -> bool:
    services = table(document.tree, "services")
    return bool(services) and all(isinstance(service, dict) for service in services.values())


def read(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one service. A variable without a value is unsupported, not guessed."""
    services = table(document.tree, "services")
    service, variables = _without_variables(services[selection.choose("service", list(services))])
    limits = table(service, "deploy", "resources", "limits")
    devices = []
    for key, name in _BLOCK.items():
        for row in rows(table(service, "blkio_config").get(key) or []):
            path, written = row.get("path"), row.get("rate", 0)
            rate = docker_bytes(written) if name in BANDWIDTH else int(written)
            basis = f"blkio_config.{key} of {path} = {written}"
            devices.append(BlockLimit(name, str(path), rate, basis))
    blocks, other_devices = limits_of_one_device(devices, selection)
    ignored = tuple(key for key in service if key not in _UNSUPPORTED and key not in _SUPPORTED)
    return ImportResult(
        "a docker compose file",
        "The limits of a customer's service, from a docker compose file.",
        (*_memory(service, limits), *_cpu(service, limits), *blocks),
        (*_unsupported(service), *variables, *other_devices),
        ignored,
    )


def _without_variables(tree: Any) -> tuple[Any, list[UnsupportedLimit]]:
    """Return the service without values that contain a variable, and those values."""
    if not isinstance(tree, dict):
        return tree, []
    kept, variables = {}, []
    for key, value in tree.items():
        if (
            isinstance(value, str)
            and _REFERENCE.search(value)
            and key in (*_SUPPORTED, *_UNSUPPORTED, "memory", "pids")
        ):
            reason = "it contains a variable; import the output of `docker compose config` instead"
            variables.append(UnsupportedLimit(f"{key} = {value}", reason))
        else:
            kept[key], inner = _without_variables(value)
            variables += inner
    return kept, variables


def _unsupported(service: Table) -> Iterator[UnsupportedLimit]:
    for key, reason in _UNSUPPORTED.items():
        if key in service:
            yield UnsupportedLimit(f"{key} = {service[key]}", reason)
    for key in table(service, "blkio_config"):
        if key.startswith("weight"):
            yield UnsupportedLimit(f"blkio_config.{key}", WEIGHT)
    resources = table(service, "deploy", "resources")
    for key, value in table(resources, "limits").items():
        if key not in ("memory", "cpus"):
            yield UnsupportedLimit(f"deploy.resources.limits.{key} = {value}", NO_SUCH_LIMIT)
    if "reservations" in resources:
        reason = "a reservation protects and does not limit"
        yield UnsupportedLimit("deploy.resources.reservations", reason)


def _memory(service: Table, limits: Table) -> Iterator[ImportedLimit]:
    """Read the memory limit, and memswap_limit, which is both: by default twice the memory."""
    is_old = "mem_limit" in service
    key, written = ("mem_limit", service["mem_limit"]) if is_old else _limit("memory", limits)
    if not written or not (memory := docker_bytes(written)):
        return
    yield ImportedLimit("MemoryMax", exact_size(memory), f"{key} = {written} (powers of 1024)")
    total = service.get("memswap_limit")
    total_bytes = -1 if total in (-1, "-1") else docker_bytes(total) if total else 0
    yield from swap_limit(memory, total_bytes, "memswap_limit", total)


def _cpu(service: Table, limits: Table) -> Iterator[ImportedLimit]:
    for key, written in (("cpus", service.get("cpus")), _limit("cpus", limits)):
        if written and (cpus := kubernetes_quantity(written)):
            yield ImportedLimit("CPUQuota", cpu_percent(cpus), f"{key} = {written}")
            return
    quota, period = (int(service.get(key) or 0) for key in ("cpu_quota", "cpu_period"))
    yield from quota_limit("cpu_quota", quota, period)


def _limit(key: str, limits: Table) -> tuple[str, Any]:
    return f"deploy.resources.limits.{key}", limits.get(key)


IMPORTERS = (Importer(recognise, read),)
