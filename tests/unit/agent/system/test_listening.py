"""Listening sockets, by the kernel's tables."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from pagecage.linux.procfs import listens, parse_listening

HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
    " inode\n"
)
states = st.integers(1, 12)
sockets = st.lists(st.tuples(st.integers(0, 65535), states), max_size=8)


def line(number: int, port: int, state: int) -> str:
    return (
        f"   {number}: 0100007F:{port:04X} 00000000:0000 {state:02X} 00000000:00000000 00:00000000"
        " 00000000 0 0 1 1\n"
    )


@given(sockets)
def test_only_listening_sockets_count(found: list[tuple[int, int]]) -> None:
    text = HEAD + "".join(line(number, *one) for number, one in enumerate(found))
    assert parse_listening(text) == {port for port, state in found if state == 10}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(port >= 0 for port in parse_listening(text) if port >= 0)


def test_addresses_of_version_6() -> None:
    address = "00000000000000000000000000000000"
    assert parse_listening(f"{HEAD}   0: {address}:1F90 {address}:0000 0A 0 0\n") == {8080}


def test_a_socket_of_this_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(port, ("self",))
        assert listens(port, (os.getpid(),))
    assert not listens(port, ("self",))


def test_an_exited_process_has_no_sockets() -> None:
    assert not listens(80, (2**22 + 1,))
