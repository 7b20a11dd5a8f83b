"""A service manager on a socket that answers method calls as a test tells it to."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pagecage.linux.systemd import (
    ERROR,
    FIXED_BYTES,
    INTERFACE,
    MEMBER,
    METHOD_RETURN,
    PATH,
    REPLY_SERIAL,
    SIGNAL,
    SIGNATURE,
    decode,
    encode,
    length_of,
)
from tests.fake_host.machine import Machine

Answer = tuple[str, str]
"""The result of the call's job, or `refused` and a sentence, or `closed`."""
JOB = "/org/freedesktop/systemd1/job/1"


class FakeUnits:
    """A thread that serves one connection after the other, until it is closed.

    `calls` has each call's member and arguments, `received` its bytes.
    """

    def __init__(self, path: Path, answer: Callable[[str, Sequence[Any]], Answer]) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.received: list[bytes] = []
        self.greeting = b"OK 0123456789abcdef0123456789abcdef\r\n"
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as stream:
                assert stream.read(1) == b"\0"
                while stream.readline() != b"BEGIN\r\n":
                    continue
                peer.sendall(self.greeting)
                while len(start := stream.read(FIXED_BYTES)) == FIXED_BYTES:
                    rest = stream.read(length_of(start) - FIXED_BYTES)
                    if not self._reply(peer, start + rest):
                        break

    def _reply(self, peer: socket.socket, data: bytes) -> bool:
        call = decode(data)
        self.received.append(data)
        self.calls.append((call.fields[MEMBER], call.arguments()))
        kind, sentence = self._answer(*self.calls[-1])
        to = {REPLY_SERIAL: int.from_bytes(data[8:12], "little")}
        if kind == "closed":
            return False
        if kind == "refused":
            peer.sendall(encode(ERROR, 1, {**to, SIGNATURE: "s"}, (sentence,)))
            return True
        peer.sendall(_signal("UnitNew", "so", ("x.slice", "/x")))
        if call.fields[MEMBER] == "SetUnitProperties":
            peer.sendall(encode(METHOD_RETURN, 1, to))
            return True
        peer.sendall(_signal("JobRemoved", "uoss", (7, f"{JOB}7", "other.slice", "failed")))
        peer.sendall(encode(METHOD_RETURN, 1, {**to, SIGNATURE: "o"}, (JOB,)))
        peer.sendall(_signal("JobRemoved", "uoss", (1, JOB, "x.slice", kind)))
        return True


def _signal(member: str, signature: str, arguments: Sequence[Any]) -> bytes:
    fields = {PATH: "/x", INTERFACE: "x.Manager", MEMBER: member, SIGNATURE: signature}
    return encode(SIGNAL, 1, fields, arguments)


def serve_machine(machine: Machine) -> FakeUnits:
    """Serve a fake machine's units over its socket, by the fake commands of the same effect."""

    def answer(member: str, arguments: Sequence[Any]) -> Answer:
        if member == "StartTransientUnit":
            return _enter(machine, *arguments[:3:2])
        verb = {"SetUnitProperties": "set-property", "StartUnit": "start", "StopUnit": "stop"}
        more = _assignments(arguments[2]) if member == "SetUnitProperties" else []
        done = subprocess.run(
            ["systemctl", verb[member], arguments[0], *more],
            capture_output=True,
            text=True,
            check=False,
        )
        return ("refused", done.stderr.strip()) if done.returncode else ("done", "")

    return FakeUnits(machine.manager_socket, answer)


def _enter(machine: Machine, name: str, properties: Sequence[Any]) -> Answer:
    """Put the process into the scope's folder."""
    values = {key: value for key, (_, value) in properties}
    scope = machine.cgroups / "pagecage.slice" / values["Slice"] / name
    scope.mkdir(parents=True)
    (scope / "cgroup.procs").write_text(f"{values['PIDs'][0]}\n")
    with machine.log.open("a") as log:
        log.write(f"scope {name} in {values['Slice']}\n")
    return "done", ""


def _assignments(properties: Sequence[Any]) -> list[str]:
    """Return properties as words of `systemctl set-property`."""
    words = []
    for name, (signature, value) in properties:
        if signature == "a(st)":
            words += [f"{name}={node} {limit}" for node, limit in value]
        elif name == "CPUQuotaPerSecUSec":
            words.append(f"CPUQuota={value // 10_000}%")
        else:
            words.append(f"{name}={value}")
    return words
