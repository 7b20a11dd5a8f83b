"""systemd units of a trial: one slice with the limits, and the workload in a scope inside it.

The slice itself has the properties. They can then be read back before anything runs, and `io.stat`
outlives the scope. A slice made only by `--slice=` loses its `io` files with the last unit that has
an I/O property in it. The manager is spoken to by D-Bus, with the standard library alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import CGROUP_ROOT, Cgroup
from pagecage.linux.procfs import read_text
from pagecage.model.cage import Cage, property_arguments
from pagecage.process import run

PARENT = "pagecage.slice"
SYSTEM_SOCKET = Path("/run/systemd/private")
_STOP_TRIES = 2
_OOM_POLICY_SINCE = 253  # systemd NEWS: OOMPolicy= is honoured on scopes since 253


@dataclass(frozen=True)
class Systemd:
    """A maker of cgroups: the system's manager, or a user's own with `io` delegated."""

    user: bool
    version: int

    def systemctl(self, *arguments: str) -> list[str]:
        return ["systemctl", *(["--user"] if self.user else []), *arguments]

    def parent_cgroup(self) -> Path:
        if not self.user:
            return CGROUP_ROOT / PARENT
        uid = os.getuid()
        return CGROUP_ROOT / f"user.slice/user-{uid}.slice/user@{uid}.service" / PARENT

    def control_directory(self) -> Path:
        if not self.user:
            return Path("/run/systemd/system.control")
        return runtime_dir() / "systemd/user.control"

    def socket(self) -> Path:
        return user_socket() if self.user else SYSTEM_SOCKET

    def is_reached(self) -> bool:
        return os.access(self.socket(), os.W_OK)

    def cgroup(self, unit: str) -> Cgroup:
        return Cgroup(unified=self.parent_cgroup() / unit)

    def make(
        self, unit: str, cage: Cage, disk: Disk, disks: Mapping[str, Disk] | None = None
    ) -> Cgroup:
        """Make the slice with the cage's limits in force. Raises PagecageError.

        `disk` is the data directory's, `disks` the cage's others by name.
        """
        nodes = {name: other.node for name, other in (disks or {}).items()}
        if self.is_reached():
            properties = to_properties(property_arguments(cage, disk.node, nodes))
            with connected(self.socket()) as manager:
                manager.set_properties(unit, properties)
                manager.start(unit)
        else:
            for command in self.make_commands(unit, cage, disk.node, nodes):
                run(command, timeout_seconds=30)
        return self.cgroup(unit)

    def make_commands(
        self, unit: str, cage: Cage, disk: str, disks: Mapping[str, str] | None = None
    ) -> list[list[str]]:
        """Return the commands of `make`, for display in a plan. `disk` stands for the disk."""
        properties = property_arguments(cage, disk, disks)
        return [
            self.systemctl("set-property", "--runtime", unit, *properties),
            self.systemctl("start", unit),
        ]

    def enter_command(
        self, unit: str, argv: Sequence[str], name: str | None = None, oom_policy: str = "kill"
    ) -> list[str]:
        """Return the command of a scope, which is named after the slice unless `name` is given."""
        policy = ["-p", f"OOMPolicy={oom_policy}"] if self.version >= _OOM_POLICY_SINCE else []
        manager = ["--user"] if self.user else []
        scope = [f"--unit={name or scope_name(unit)}", f"--slice={unit}", *policy]
        return ["systemd-run", *manager, "--quiet", "--scope", "--collect", *scope, "--", *argv]

    def start_scope(self, unit: str, pid: int) -> None:
        policy = {"OOMPolicy": "kill"} if self.version >= _OOM_POLICY_SINCE else {}
        with connected(self.socket()) as manager:
            manager.start_scope(f"{scope_name(unit)}.scope", scope_properties(unit, pid, policy))

    def container_parent(self, unit: str) -> str:
        return unit

    def signal(self, unit: str, name: str) -> None:
        command = self.systemctl("kill", f"--signal={name}", unit)
        run(command, check=False, timeout_seconds=30)

    def remove(self, unit: str) -> None:
        """End everything in the slice; remove the slice and its drop-ins.

        The drop-ins are deleted directly: `systemctl revert` also reloads the whole manager, which
        costs more than all the rest of a trial's overhead. systemd forgets a stopped slice, so
        nothing reads old drop-ins again.
        """
        cgroup = self.parent_cgroup() / unit
        for _ in range(_STOP_TRIES):
            reason = self._stop(unit)
            if reason is None or not cgroup.exists():
                break
        else:
            raise HostError(f"{unit} could not be stopped: {reason}", f"systemctl stop {unit}")
        shutil.rmtree(self.control_directory() / f"{unit}.d", ignore_errors=True)

    def remove_commands(self, unit: str) -> list[list[str]]:
        drop_ins = self.control_directory() / f"{unit}.d"
        return [self.systemctl("stop", unit), ["rm", "-r", str(drop_ins)]]

    def _stop(self, unit: str) -> str | None:
        if not self.is_reached():
            done = run(self.systemctl("stop", unit), timeout_seconds=60, check=False)
            return None if done.ok else done.stderr.strip() or f"status {done.status}"
        try:
            with connected(self.socket()) as manager:
                manager.stop(unit)
        except HostError as error:
            return error.message
        return None

    def left_over(self) -> list[str]:
        cgroups = (path.name for path in self.parent_cgroup().glob("pagecage-*.slice"))
        found = self.control_directory().glob("pagecage-*.slice.d")
        return sorted({*cgroups, *(path.name.removesuffix(".d") for path in found)})

    def sweep(self) -> list[str]:
        """Remove what a killed agent left; return the names of what was there."""
        units = self.left_over()
        for unit in units:
            self.remove(unit)
        return units


def runtime_dir() -> Path:
    """Return this user's runtime directory; `su` does not set the variable (pam_systemd(8))."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def user_socket() -> Path:
    return runtime_dir() / "systemd/private"


def unit_name(trial_id: str, attempt: int = 1) -> str:
    """Return an attempt's slice; dashes would nest slices (systemd.slice(5))."""
    return f"pagecage-{trial_id.replace('-', '_')}.{attempt}.slice"


def scope_name(unit: str) -> str:
    return unit.removesuffix(".slice").replace("pagecage-", "pagecage-run-")


def systemd_version(systemctl_output: str) -> int:
    words = systemctl_output.split()
    number = words[1].split(".")[0].split("~")[0] if len(words) > 1 else ""
    return int(number) if number.isdigit() else 0


def is_pid1(proc: Path = Path("/proc")) -> bool:
    return (read_text(proc / "1/comm") or "").strip() == "systemd"


# --- The manager's D-Bus --------------------------------------------------------------------------

METHOD_CALL, METHOD_RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, REPLY_SERIAL, DESTINATION, SIGNATURE = 1, 2, 3, 5, 6, 8
_FIELD_TYPES = {
    **dict.fromkeys((INTERFACE, MEMBER, DESTINATION), "s"),
    PATH: "o",
    REPLY_SERIAL: "u",
    SIGNATURE: "g",
}
_HEADER = "yyyyuua(yv)"
KIND_BYTE = 1
"""Place of a message's type in its bytes."""
FIXED_BYTES = 16
"""Length of a header up to its fields, whose length is the last of these numbers."""
_NUMBERS = {"y": "B", "b": "I", "u": "I", "t": "Q"}
_ALIGNMENT = {
    **{code: struct.calcsize(form) for code, form in _NUMBERS.items()},
    **dict.fromkeys("soa", 4),
    **dict.fromkeys("gv", 1),
    **dict.fromkeys("({", 8),
}


@dataclass(frozen=True)
class Received:
    """A received message: its type, and its header fields by code."""

    kind: int
    fields: dict[int, Any]
    _body: bytes
    _order: str

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments. Raises KeyError for a type that is not known here."""
        reader = _Reader(self._body, self._order)
        return tuple(reader.take(one) for one in types_of(self.fields.get(SIGNATURE, "")))


def types_of(signature: str) -> Iterator[str]:
    """Yield the complete types of a signature, such as "s" and "a(sv)" of "sa(sv)"."""
    begin = depth = 0
    for place, code in enumerate(signature):
        depth += (code in "({") - (code in ")}")
        if depth == 0 and code != "a":
            yield signature[begin : place + 1]
            begin = place + 1


def encode(
    kind: int, serial: int, fields: Mapping[int, Any], arguments: Sequence[Any] = ()
) -> bytes:
    body, header = bytearray(), bytearray()
    for one, value in zip(types_of(fields.get(SIGNATURE, "")), arguments, strict=True):
        _put(body, one, value)
    variants = [(code, (_FIELD_TYPES[code], value)) for code, value in fields.items()]
    values = (ord("l"), kind, 0, 1, len(body), serial, variants)
    for one, value in zip(types_of(_HEADER), values, strict=True):
        _put(header, one, value)
    _pad(header, 8)
    return bytes(header + body)


def length_of(start: bytes) -> int:
    order = "<" if start[:1] == b"l" else ">"
    body, _, fields = struct.unpack_from(f"{order}III", start, 4)
    return int(FIXED_BYTES + fields + -fields % 8 + body)


def decode(data: bytes) -> Received:
    order = "<" if data[:1] == b"l" else ">"
    reader = _Reader(data, order)
    values = [reader.take(one) for one in types_of(_HEADER)]
    fields = {code: value for code, (_, value) in values[6]}
    reader.align(8)
    return Received(values[1], fields, data[reader.place :], order)


def _pad(out: bytearray, alignment: int) -> None:
    out += bytes(-len(out) % alignment)


def _put(out: bytearray, kind: str, value: Any) -> None:
    code = kind[0]
    _pad(out, _ALIGNMENT[code])
    if code in _NUMBERS:
        out += struct.pack(f"<{_NUMBERS[code]}", value)
    elif code in "sog":
        text = value.encode()
        out += struct.pack("<B" if code == "g" else "<I", len(text)) + text + b"\0"
    elif code == "v":
        _put(out, "g", value[0])
        _put(out, *value)
    elif code == "a":
        place = len(out)
        out += bytes(4)
        _pad(out, _ALIGNMENT[kind[1]])
        begin = len(out)
        for item in value:
            _put(out, kind[1:], item)
        # The length leaves out the padding before the first item.
        struct.pack_into("<I", out, place, len(out) - begin)
    else:
        for inner, item in zip(types_of(kind[1:-1]), value, strict=True):
            _put(out, inner, item)


class _Reader:
    def __init__(self, data: bytes, order: str) -> None:
        self._data, self._order, self.place = data, order, 0

    def align(self, alignment: int) -> None:
        self.place += -self.place % alignment

    def take(self, kind: str) -> Any:
        code = kind[0]
        self.align(_ALIGNMENT[code])
        if code in _NUMBERS:
            return self._number(_NUMBERS[code])
        if code in "sog":
            length = self._number("B" if code == "g" else "I")
            self.place += length + 1
            return self._data[self.place - length - 1 : self.place - 1].decode()
        if code == "v":
            inner = self.take("g")
            return inner, self.take(inner)
        if code == "a":
            length = self._number("I")
            self.align(_ALIGNMENT[kind[1]])
            end, items = self.place + length, []
            while self.place < end:
                items.append(self.take(kind[1:]))
            return items
        return tuple(self.take(inner) for inner in types_of(kind[1:-1]))

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(self._order + form, self._data, self.place)
        self.place += struct.calcsize(form)
        return int(number)


_NAME = "org.freedesktop.systemd1"
_OBJECT = "/org/freedesktop/systemd1"
_MOST_SECONDS = 60.0
_USEC_PER_PERCENT = 10_000
_JOB_REMOVED = "JobRemoved"
_DONE = ("done", "skipped")

Property = tuple[str, tuple[str, Any]]
"""A unit's property: its name, and a variant."""


@contextmanager
def connected(path: Path) -> Iterator[UnitMethods]:
    try:
        with socket.socket(socket.AF_UNIX) as peer, peer.makefile("rb") as stream:
            peer.settimeout(_MOST_SECONDS)
            peer.connect(str(path))
            yield UnitMethods(peer, stream)
    except OSError as error:
        hint = "systemctl is-system-running"
        raise HostError(f"systemd does not answer on {path}: {error}", hint) from None


class UnitMethods:
    """One connection to a service manager. Its methods raise HostError with systemd's sentence."""

    def __init__(self, peer: socket.socket, stream: IO[bytes]) -> None:
        """Authenticate by the user id, which the kernel confirms (SASL EXTERNAL)."""
        self._peer, self._stream, self._serial = peer, stream, 0
        self._results: dict[str, str] = {}
        uid = str(os.getuid()).encode().hex()
        peer.sendall(f"\0AUTH EXTERNAL {uid}\r\nBEGIN\r\n".encode())
        if not (answer := self._stream.readline()).startswith(b"OK "):
            refusal = answer.decode(errors="replace").strip()
            raise HostError(f"systemd refuses this user: {refusal}", "systemctl is-system-running")

    def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self._call("SetUnitProperties", "sba(sv)", unit, 1, properties)

    def start(self, unit: str) -> None:
        self._finish("StartUnit", unit, *self._call("StartUnit", "ss", unit, "replace"))

    def stop(self, unit: str) -> None:
        self._finish("StopUnit", unit, *self._call("StopUnit", "ss", unit, "replace"))

    def start_scope(self, name: str, properties: Sequence[Property]) -> None:
        job = self._call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", properties, [])
        self._finish("StartTransientUnit", name, *job)

    def _finish(self, member: str, unit: str, job: str) -> None:
        while job not in self._results:
            self._take()
        if (result := self._results[job]) not in _DONE:
            raise HostError(f"{member} of {unit} ended as {result}", f"systemctl status {unit}")

    def _call(self, member: str, signature: str, *arguments: Any) -> tuple[Any, ...]:
        self._serial += 1
        fields = {PATH: _OBJECT, MEMBER: member, INTERFACE: f"{_NAME}.Manager"}
        fields |= {DESTINATION: _NAME, SIGNATURE: signature}
        self._peer.sendall(encode(METHOD_CALL, self._serial, fields, arguments))
        while (answer := self._take()) is None or answer.fields.get(REPLY_SERIAL) != self._serial:
            continue
        if answer.kind == ERROR:
            unit, reason = arguments[0], " ".join(map(str, answer.arguments()))
            what = f"systemd refuses {member} of {unit}: {reason}"
            raise HostError(what, f"systemctl status {unit}")
        return answer.arguments()

    def _take(self) -> Received | None:
        """Read a message; keep the result of a job. Return None for other signals: ten a call."""
        start = self._read(FIXED_BYTES)
        data = start + self._read(length_of(start) - FIXED_BYTES)
        if start[KIND_BYTE] == SIGNAL and _JOB_REMOVED.encode() not in data:
            return None
        message = decode(data)
        if message.fields.get(MEMBER) == _JOB_REMOVED:
            _, job, _, result = message.arguments()
            self._results[job] = result
        return message

    def _read(self, length: int) -> bytes:
        data = self._stream.read(length)
        if len(data) < length:
            raise ConnectionResetError("it closed the connection")
        return data


def to_properties(arguments: Sequence[str]) -> list[Property]:
    """Return arguments of `systemctl set-property`. Raises ValueError for an unknown property."""
    return [_property(*argument.partition("=")[::2]) for argument in arguments]


def _property(name: str, value: str) -> Property:
    if name.endswith("Accounting"):
        return name, ("b", int(value == "yes"))
    if name == "CPUQuota":
        return "CPUQuotaPerSecUSec", ("t", int(value.removesuffix("%")) * _USEC_PER_PERCENT)
    if name.startswith("Memory"):
        return name, ("t", int(value))
    if name.startswith("IO"):
        node, _, limit = value.rpartition(" ")
        return name, ("a(st)", [(node, int(limit))])
    raise ValueError(f"{name} is not a known property")


def scope_properties(
    slice_unit: str, pid: int, more: Mapping[str, str], description: str = "workload of a trial"
) -> list[Property]:
    """Return the properties of a scope around a process; systemd forgets an empty one."""
    return [
        ("Description", ("s", description)),
        ("CollectMode", ("s", "inactive-or-failed")),
        *((name, ("s", value)) for name, value in more.items()),
        ("Slice", ("s", slice_unit)),
        ("PIDs", ("au", [pid])),
    ]
