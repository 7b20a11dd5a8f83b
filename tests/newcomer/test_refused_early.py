"""Refusals before anything is made, on this machine as it is: the cheapest of the newcomers'
cases.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.newcomer.machine import CAN_PIVOT, Machine, machine, printed

pytestmark = CAN_PIVOT
SMALL = """mkdir -p "$root/small"
mount -t tmpfs -o size=2900m small "$root/small"
cp -a "$root/home/new/pagecage" "$root/small/pagecage"
chown 1000:1000 "$root/small"
"""


@pytest.fixture
def here() -> Iterator[Machine]:
    with machine("host") as here:
        yield here


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_disk_that_is_too_small(here: Machine) -> None:
    places = {"HOME": "/small", "XDG_CACHE_HOME": "/small/cache"}
    little = 'cd /small/pagecage && df -Pk . | awk "END { exit !(\\$4 < 3 * 1048576) }"'
    command = "make experiment NAME=smoke HOST=vm; echo status $?; git status --short --ignored"
    done = here.run(f"{little} && {command}", prepare=SMALL, seconds=900, **places)
    assert "status 2" in done.stdout, printed(done)
    assert "pagecage: the disk of /small/pagecage has 2." in done.stderr, printed(done)
    assert " GiB free, and the set-up takes 4." in done.stderr
    assert "  fix: free 4." in done.stderr
    assert done.stdout.endswith("status 2\n"), f"something was made: {printed(done)}"


@pytest.mark.slow
def test_a_proxy_that_answers_nothing(here: Machine, silent_port: int) -> None:
    began = time.monotonic()
    done = here.run("make list", https_proxy=f"http://127.0.0.1:{silent_port}")
    assert done.status == 2, printed(done)
    reported = f"pagecage: the proxy 127.0.0.1:{silent_port} does not answer"
    assert reported in done.stderr, printed(done)
    assert "  fix: unset http_proxy https_proxy" in done.stderr
    assert time.monotonic() - began < 30
