"""systemd's methods for units, called over its own socket (org.freedesktop.systemd1(5)).

systemctl and systemd-run make the same calls. Starting them takes longer than the calls: five
times as long on an emulated CPU. A connection lasts for one piece of work, because systemd sends
every connection a signal for each change of a unit, also during a measured part.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pagecage.agent.dbus.message import (
    DESTINATION,
    ERROR,
    FIXED_BYTES,
    INTERFACE,
    KIND_BYTE,
    MEMBER,
    METHOD_CALL,
    PATH,
    REPLY_SERIAL,
    SIGNAL,
    SIGNATURE,
    Received,
    decode,
    encode,
    length_of,
)
from pagecage.errors import HostError

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
    """Yield a connection to the service manager that listens on this socket.

    Raises HostError if it cannot be reached, or if it breaks off.
    """
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
        """Set properties until the next boot, as `systemctl set-property --runtime` does."""
        self._call("SetUnitProperties", "sba(sv)", unit, 1, properties)

    def start(self, unit: str) -> None:
        """Start a unit, as `systemctl start` does."""
        self._finish("StartUnit", unit, *self._call("StartUnit", "ss", unit, "replace"))

    def stop(self, unit: str) -> None:
        """Stop a unit, as `systemctl stop` does."""
        self._finish("StopUnit", unit, *self._call("StopUnit", "ss", unit, "replace"))

    def start_scope(self, name: str, properties: Sequence[Property]) -> None:
        """Make a scope around running processes, as `systemd-run --scope` does."""
        job = self._call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", properties, [])
        self._finish("StartTransientUnit", name, *job)

    def _finish(self, member: str, unit: str, job: str) -> None:
        """Wait until the job is over. Raises HostError unless it is done."""
        while job not in self._results:
            self._take()
        if (result := self._results[job]) not in _DONE:
            raise HostError(f"{member} of {unit} ended as {result}", f"systemctl status {unit}")

    def _call(self, member: str, signature: str, *arguments: Any) -> tuple[Any, ...]:
        self._serial += 1
        fields = {
            PATH: _OBJECT,
            MEMBER: member,
            INTERFACE: f"{_NAME}.Manager",
            DESTINATION: _NAME,
            SIGNATURE: signature,
        }
        self._peer.sendall(encode(METHOD_CALL, self._serial, fields, arguments))
        while (answer := self._take()) is None or answer.fields.get(REPLY_SERIAL) != self._serial:
            continue
        if answer.kind == ERROR:
            reason = " ".join(map(str, answer.arguments()))
            unit = arguments[0]
            hint = f"systemctl status {unit}"
            raise HostError(f"systemd refuses {member} of {unit}: {reason}", hint)
        return answer.arguments()

    def _take(self) -> Received | None:
        """Read the next message; keep the result of a job that it announces.

        Returns None for any other signal. There are ten for a call, which are not worth decoding.
        """
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
    """Return the arguments of `systemctl set-property` as properties.

    Raises ValueError for a property whose type is not known here.
    """
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
    """Return the properties of a scope in a slice that takes in one process.

    systemd forgets the scope once it is empty, even if it failed.
    """
    return [
        ("Description", ("s", description)),
        ("CollectMode", ("s", "inactive-or-failed")),
        *((name, ("s", value)) for name, value in more.items()),
        ("Slice", ("s", slice_unit)),
        ("PIDs", ("au", [pid])),
    ]
