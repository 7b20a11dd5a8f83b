"""The socket of a shared connection."""

from __future__ import annotations

import socket
from pathlib import Path

from pagecage.hosts.ssh import remove_stale_socket


def test_only_a_socket_that_nobody_listens_on_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ssh"
    remove_stale_socket(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        remove_stale_socket(path)
        assert path.exists()
    remove_stale_socket(path)
    assert not path.exists()
