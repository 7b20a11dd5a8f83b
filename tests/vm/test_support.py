"""The five commands of docs/SUPPORT.md, typed in order: from a slow disk to the limit's name."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import Completed, run
from tests.builders.command_line import pagecage_in
from tests.builders.programs import install
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(1200)]
_GUIDE = (ROOT / "docs/SUPPORT.md").read_text().split("## Five commands\n", 1)[1]
COMMANDS = [
    line.strip() for line in _GUIDE.split("\n## ", 1)[0].splitlines() if line.startswith(" " * 7)
]
IOPS = 100
_SERVER = """#!/usr/bin/env python3
import mmap, random, socket, sys
assert sys.argv[1:] == ["--load-index"]
with open("index/postings", "rb") as file:
    index = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    index.madvise(mmap.MADV_RANDOM)
    pages = list(range(0, len(index), 8192))
    random.Random(1).shuffle(pages)
    print(sum(index[page] for page in pages), flush=True)
with socket.create_server(("127.0.0.1", 8080)) as server:
    server.accept()
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """The support engineer's folder: the program that is slow at the customer's, and its index."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index/postings").write_bytes(os.urandom(8 * 2**20))
    install(tmp_path / "server", _SERVER)
    (tmp_path / "cgroups").mkdir()
    (tmp_path / "experiments").mkdir()
    return tmp_path


def typed(desk: Path, command: str) -> Completed:
    """Type a command of the guide. The server and the index come along by themselves."""
    words = shlex.split(command)[1:]
    if words[0] == "replay":
        words[1:1] = ["--host", "vm"]
    done = pagecage_in(desk, *words)
    assert done.ok, done.stderr
    return done


def probed(host: VmHost, probe: Path, command: str) -> str:
    """Run the probe for a quarter of its time in a guest whose disk allows few I/Os, as at the
    customer's; return its JSON.
    """
    _, folder, option, _ = shlex.split(command)
    assert option == "--out"
    host.push([probe], f"{host.spool_dir}/probe")
    limits = f"-p 'IOReadIOPSMax=/data {IOPS}' -p 'IOWriteIOPSMax=/data {IOPS}'"
    script = f"""
        install -d /data/customer && install -d {folder} && mount --bind /data/customer {folder}
        systemd-run --quiet --collect --wait --pipe {limits} \
            {host.spool_dir}/probe/pcprobe {folder} --yes --seconds 15 --size 64MiB
        status=$?; umount {folder}; exit $status
    """
    done = run(host.command(["sh", "-c", script]), check=False, timeout_seconds=300)
    assert done.ok, done.stderr
    return done.stdout


def test_five_commands_lead_to_the_limit(desk: Path, host: VmHost) -> None:
    print_path, probe, import_cage, replay, predict = COMMANDS
    path = Path(typed(desk, print_path).stdout.strip())
    (desk / "probe.json").write_text(probed(host, path, probe))
    host.stop()
    saved = desk / "cgroups/acme.toml"
    typed(desk, import_cage)
    assert f"IOReadIOPSMax = {IOPS}" in saved.read_text()
    printed = " ".join(typed(desk, replay).stdout.split())
    # An emulated CPU may bind for a few windows.
    found = re.search(r"limit IOPS \(IOReadIOPSMax\), (\d+) % of the time", printed)
    assert found, printed
    assert int(found[1]) >= 80
    volumes = typed(desk, f"{predict} --json").stdout
    assert json.loads(volumes)
