"""The server of a volume as a process: its parameters, its end, and faults of the file below."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pagecage.agent.volume_server import VolumeServer, server_argv
from pagecage.errors import HostError
from pagecage.process import Completed, Process, run, spawn
from tests.builders.volumes import PLUGIN_FILE, served
from tests.builders.waiting import wait_until
from tests.tree import ROOT
from tests.volume.clients import (
    READ_FAILED,
    SECONDS,
    account,
    add,
    bench_argv,
    qemu_io,
    volume_file,
    wait_for_queue,
)

README = ROOT / "volume/README.md"
MIB = 2**20


def nbdkit(*parameters: str | Path, folder: Path) -> Completed:
    """Run nbdkit with these parameters until `true` ends."""
    argv = ["nbdkit", "-U", "-", PLUGIN_FILE, *parameters, "--run", "true"]
    return run(argv, check=False, timeout_seconds=SECONDS, cwd=folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, and the file of a volume."""
    with TemporaryDirectory(prefix="pcv-") as name:
        with Path(name, "disk").open("wb") as disk:
            disk.truncate(MIB)
        yield Path(name)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ((), "file=PATH is missing"),
        (("file=disk", "size=5"), "there is no parameter size"),
        (("file=disk", "file=disk"), "file is given twice"),
        (("file=missing",), r"/missing: No such file or directory"),
        (("file=empty",), r"/empty: the file is empty, so the volume has no size"),
        (("file=.",), "Is a directory"),
        (("disk", "model=absent.json"), r"/absent.json: No such file or directory"),
        (("disk", "model=wrong.json"), r"/wrong.json: unknown field `limit`"),
        (("disk", "model=zero.json"), "per_second must be positive, and is 0"),
        (("disk", "control=/nowhere/socket"), "/nowhere/socket: No such file or directory"),
        (("disk", "control=disk"), "/disk: Address already in use"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(
    folder: Path, parameters: tuple[str, ...], reason: str
) -> None:
    (folder / "empty").touch()
    (folder / "wrong.json").write_text('{"limit": []}')
    limit = '{"layer": "volume", "scope": "both", "unit": "bytes", "per_second": 0}'
    (folder / "zero.json").write_text(f'{{"limits": [{limit}]}}')
    done = nbdkit(*parameters, folder=folder)
    assert done.status != 0
    assert re.search(reason, done.stderr), done.stderr
    assert (folder / "disk").stat().st_size == MIB
    assert not [path for path in folder.iterdir() if path.is_socket()]


def test_a_file_is_served_once(server: VolumeServer) -> None:
    done = nbdkit(volume_file(server), folder=server.data_socket.parent)
    assert "another process serves this file" in done.stderr


def test_relative_paths_hold_for_a_daemon(folder: Path) -> None:
    """Without --foreground nbdkit changes its directory."""
    argv = ["nbdkit", "-U", f"{folder}/data", "-P", f"{folder}/pid"]
    run([*argv, PLUGIN_FILE, "disk", "control=control"], cwd=folder)
    written = folder / "pid"
    wait_until(lambda: written.exists() and written.read_text())  # by the daemon
    pid = int((folder / "pid").read_text())
    try:
        url = f"nbd+unix:///?socket={folder}/data"
        assert run(["qemu-io", "-f", "raw", "-c", "write -P 3 0 4k", url]).ok
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)  # an orphan becomes a child of the tests (tests/conftest.py)
    assert (folder / "disk").read_bytes()[:4096] == b"\3" * 4096
    assert not (folder / "control").exists()


@contextmanager
def process(folder: Path, *words: str | Path) -> Iterator[Process[bytes]]:
    """Run a server for the block, in the foreground, from when both its sockets are there."""
    running = spawn([*words, *server_argv(PLUGIN_FILE, folder / "disk", folder)])
    try:
        sockets = (folder / "volume-control", folder / "volume")
        wait_until(lambda: running.poll() or all(path.exists() for path in sockets))
        assert running.poll() is None
        yield running
    finally:
        running.kill()
        running.wait()


def test_a_killed_server_leaves_two_sockets_and_the_next_one_starts(folder: Path) -> None:
    for _ in range(3):
        with process(folder) as running:
            running.kill()
            running.wait()
        assert {path.name for path in folder.iterdir()} == {"disk", "volume", "volume-control"}
        (folder / "volume").unlink()  # nbdkit's own; it does not replace one


def test_a_control_socket_in_use_is_not_taken_over(folder: Path) -> None:
    (folder / "other").write_bytes(b"x" * MIB)
    with process(folder) as running:
        done = nbdkit("other", f"control={folder}/volume-control", folder=folder)
        assert "Address already in use" in done.stderr
        assert running.poll() is None
        assert (folder / "volume-control").exists()


@pytest.mark.parametrize("kind", ["pause", "delay"])
def test_a_server_ends_at_once_while_requests_wait(server: VolumeServer, kind: str) -> None:
    add(server, kind=kind, **({"latency_us": 60e6} if kind == "delay" else {}))
    reading = spawn(bench_argv(server, 16))
    wait_for_queue(server, 16)
    os.kill(server.pid, signal.SIGTERM)
    wait_until(lambda: not server.alive(), 5)
    reading.kill()
    reading.wait()


def test_a_client_of_a_killed_server_fails_at_once(folder: Path) -> None:
    with process(folder) as running:
        url = f"nbd+unix:///?socket={folder}/volume"
        reading = spawn(["qemu-img", "bench", "-f", "raw", "-c", "1000000", url])
        time.sleep(0.2)
        running.kill()
        assert reading.wait(SECONDS) != 0


def test_a_file_that_shrinks_is_an_error_with_its_reason(server: VolumeServer) -> None:
    os.truncate(volume_file(server), MIB)
    done = qemu_io(server, "read 0 4k", "read 8M 4k")
    assert done.stdout.count(READ_FAILED) == 1
    counted = account(server)["pcvolume"]
    assert counted["failed_ops"] == 1
    assert counted["last_error"] == "failed to fill whole buffer"


def test_a_file_below_that_cannot_grow_is_an_error_with_its_reason(folder: Path) -> None:
    """A limit on file sizes stands in for a full disk (setrlimit(2), RLIMIT_FSIZE)."""
    (folder / "disk").write_bytes(b"")
    os.truncate(folder / "disk", 8 * 2**20)
    limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 2048; exec "$@"', "sh"]  # 1 MiB
    with process(folder, *limited) as running:
        server = VolumeServer(running, folder, folder / "log")
        done = qemu_io(server, "write -P 1 0 512k", "write -P 1 2M 4M", "read -P 1 0 512k")
        assert "write failed: No space left on device" in done.stdout
        counted = account(server)
        assert counted["pcvolume"]["failed_ops"] == 1
        assert counted["pcvolume"]["last_error"] == "File too large (os error 27)"
        assert counted["total_read_ops"] == 1


def test_a_server_that_cannot_start_gives_its_reason(folder: Path) -> None:
    with pytest.raises(HostError, match=r"nbdkit did not start: .*absent: No such file"):
        VolumeServer.start(PLUGIN_FILE, folder / "absent", folder, folder / "log")


def test_served_leaves_nothing() -> None:
    with served() as server:
        directory = server.data_socket.parent
    assert not directory.exists()
    assert not server.alive()


def test_the_example_of_the_readme_works(folder: Path) -> None:
    """The blocks of its section `By hand`, in one shell, in an empty folder."""
    section = README.read_text().split("## By hand")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    plugin = f"cp {shlex.quote(str(PLUGIN_FILE))} libpcvolume.so"
    (folder / "disk").unlink()
    done = run(["sh", "-eu", "-c", "\n".join([plugin, *blocks])], cwd=folder, check=False)
    assert done.ok, done.stdout + done.stderr
    assert "Run completed in" in done.stdout
    assert '"total_read_ops":3000' in done.stdout
    assert not [path for path in folder.iterdir() if path.is_socket()]
