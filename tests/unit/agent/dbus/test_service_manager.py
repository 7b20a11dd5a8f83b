"""Method calls to systemd: the same bytes as systemctl's, and every answer that there is."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import HostError
from pagecage.linux.dbus import (
    MEMBER,
    SIGNAL,
    SIGNATURE,
    UnitMethods,
    connected,
    decode,
    encode,
    scope_properties,
    to_properties,
    types_of,
)
from pagecage.model.cage import Cage, DiskLimits, property_arguments
from tests.builders.service_manager import Answer, FakeUnits
from tests.tree import ROOT

CAPTURED: dict[str, Any] = json.loads((ROOT / "tests/fixtures/systemd-calls.json").read_text())
"""Messages of systemctl and systemd-run themselves, recorded on a socket."""
LIMITED = Cage(
    "x",
    {"MemoryMax": 8388608, "MemorySwapMax": 0, "IOReadIOPSMax": 100},
    disks={"wal": DiskLimits({"IOReadBandwidthMax": 20_000_000})},
)
UNIT = "pagecage-x.1.slice"
Serve = Callable[[Answer], FakeUnits]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private"


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    served: list[FakeUnits] = []

    def begin(answer: Answer) -> FakeUnits:
        served.append(FakeUnits(path, lambda *_: answer))
        return served[-1]

    yield begin
    for one in served:
        one.close()


def call_like_systemctl(manager: UnitMethods, command: str) -> None:
    arguments = property_arguments(LIMITED, "/dev/vda", {"wal": "/dev/vdb"})
    if " set-property " in command:
        manager.set_properties(UNIT, to_properties([*arguments, "CPUQuota=50%"]))
    elif " start " in command:
        manager.start(UNIT)
    elif " stop " in command:
        manager.stop(UNIT)
    else:
        policy, described = {"OOMPolicy": "kill"}, CAPTURED["description"]
        properties = scope_properties(UNIT, CAPTURED["pid"], policy, described)
        manager.start_scope("pagecage-run-x.1.scope", properties)


@pytest.mark.parametrize("message", CAPTURED["messages"], ids=lambda one: one["command"][:24])
def test_the_message_is_that_of_the_command(
    path: Path, serve: Serve, message: dict[str, str]
) -> None:
    served = serve(("done", ""))
    with connected(path) as manager:
        call_like_systemctl(manager, message["command"])
    assert served.received[0].hex() == message["bytes"]


def test_calls_follow_each_other_on_a_connection(path: Path, serve: Serve) -> None:
    served = serve(("done", ""))
    with connected(path) as manager:
        manager.set_properties(UNIT, [])
        manager.start(UNIT)
    with connected(path) as manager:
        manager.stop(UNIT)
    assert [member for member, _ in served.calls] == ["SetUnitProperties", "StartUnit", "StopUnit"]


@pytest.mark.parametrize("result", ["failed", "canceled", "timeout", "dependency", "invalid"])
def test_a_job_that_did_not_end_well_is_an_error(path: Path, serve: Serve, result: str) -> None:
    serve((result, ""))
    with pytest.raises(HostError, match=f"StartUnit of {UNIT} ended as {result}"):  # noqa: SIM117
        with connected(path) as manager:
            manager.start(UNIT)


def test_a_refusal_is_systemds_sentence(path: Path, serve: Serve) -> None:
    serve(("refused", "Unit x.slice is masked."))
    with pytest.raises(HostError, match=r"refuses StartUnit .*: Unit x\.slice is masked"):  # noqa: SIM117
        with connected(path) as manager:
            manager.start(UNIT)


def test_a_connection_that_breaks_off_is_an_error(path: Path, serve: Serve) -> None:
    serve(("closed", ""))
    with pytest.raises(HostError, match="does not answer"), connected(path) as manager:
        manager.start(UNIT)


def test_a_user_who_is_not_believed_is_told(path: Path, serve: Serve) -> None:
    serve(("done", "")).greeting = b"REJECTED EXTERNAL\r\n"
    with pytest.raises(HostError, match="refuses this user: REJECTED"), connected(path):
        pass


def test_without_a_socket_there_is_no_connection(path: Path) -> None:
    with pytest.raises(HostError, match="does not answer"), connected(path):
        pass


def test_an_unknown_property_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="TasksMax"):
        to_properties(["TasksMax=5"])


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": TEXT,
    "b": st.integers(0, 1),
    "u": st.integers(0, 2**32 - 1),
    "t": st.integers(0, 2**64 - 1),
    "a(st)": st.lists(st.tuples(TEXT, st.integers(0, 2**64 - 1))),
    "a(sv)": st.lists(st.tuples(TEXT, st.tuples(st.just("au"), st.lists(st.integers(0, 9))))),
}


@given(st.lists(st.sampled_from(sorted(VALUES))), st.data())
def test_what_is_written_is_read(kinds: Sequence[str], data: st.DataObject) -> None:
    values = tuple(data.draw(VALUES[kind]) for kind in kinds)
    written = encode(SIGNAL, 1, {MEMBER: "x", SIGNATURE: "".join(kinds)}, values)
    found = decode(written)
    assert (found.fields[MEMBER], found.arguments()) == ("x", values)
    assert list(types_of("".join(kinds))) == list(kinds)


def test_the_other_byte_order_is_read() -> None:
    fields = struct.pack(">BB2sI2s", 8, 1, b"g\0", 0x01750000, b"")[:7]
    header = struct.pack(">BBBBIII", ord("B"), 4, 0, 1, 4, 1, len(fields)) + fields
    message = header + bytes(-len(header) % 8) + struct.pack(">I", 258)
    assert decode(message).arguments() == (258,)
