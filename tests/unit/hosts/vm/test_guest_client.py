"""Requests to the daemon in a guest: its answers, its refusals, and a connection that it closes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagecage.errors import HostDied, HostError
from pagecage.hosts.vm.guest_client import release, set_clock


@contextmanager
def daemon(folder: Path, answer: bytes) -> Iterator[Path]:
    """Serve one request with these bytes."""
    place = folder / "port"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                lines.readline()
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield place
        thread.join()


def test_an_answer_without_a_value_is_an_answer(tmp_path: Path) -> None:
    with daemon(tmp_path, b"{}\n") as port:
        assert set_clock(port) >= 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "the restored guest failed to clock: it closed the connection"),
        (b'{"error": "no clock"}\n', "the restored guest failed to clock: no clock"),
        (b"{\n", "the daemon in the guest does not answer"),
    ],
)
def test_the_reason_of_a_failure(tmp_path: Path, answer: bytes, says: str) -> None:
    with daemon(tmp_path, answer) as port, pytest.raises(HostError, match=says):
        set_clock(port)


def test_a_guest_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(HostDied, match="does not answer"):
        set_clock(tmp_path / "port")
    assert not release(tmp_path / "port")


@pytest.mark.parametrize("is_unmounted", [True, False])
def test_disks_are_released_or_in_use(tmp_path: Path, is_unmounted: bool) -> None:
    with daemon(tmp_path, b'{"unmounted": %s}\n' % str(is_unmounted).lower().encode()) as port:
        assert release(port) is is_unmounted
