"""Cold files in the guest: the disk delivers them again, on overlayfs too, and as another user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagecage.hosts.agent_package import module_files, zipapp_bytes
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import Completed, run
from pagecage.units import MIB

pytestmark = [pytest.mark.vm, pytest.mark.slow]
SIZE = 8 * MIB
PAGES = SIZE // 4096
FOLDER = "/data/cold-test"
# Prints the certificate or the error, then the bytes that the disk delivers for the next read.
MAIN = b"""
import json, sys
from pathlib import Path
from pagecage.eviction import NotCold, cold
from pagecage.errors import PagecageError
def delivered():
    lines = Path("/proc/diskstats").read_text().splitlines()
    return sum(512 * int(line.split()[5]) for line in lines if line.split()[2] == "vdb")
path = sys.argv[1]
try:
    found = cold([path]).to_json()
except NotCold as error:
    found = {**error.certificate.to_json(), "error": error.message}
except PagecageError as error:
    found = {"error": error.message}
if not found.get("error"):
    before = delivered()
    Path(path).read_bytes()
    found["delivered"] = delivered() - before
print(json.dumps(found))
"""
MAP = """
import ctypes, mmap, sys, time
file = open(sys.argv[1], "rb")
memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(memory[place] for place in range(0, len(memory), 4096))
if sys.argv[2:] and ctypes.CDLL(None).mlockall(1):
    sys.exit("mlockall failed")
open(sys.argv[1] + ".mapped", "w").close()
time.sleep(600)
"""


def shell(host: VmHost, script: str, *, check: bool = True) -> Completed:
    return run(host.command(["sh", "-c", f"set -eu\n{script}"]), check=check, timeout_seconds=300)


@pytest.fixture(scope="module")
def folder(host: VmHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made: Path = tmp_path_factory.mktemp("cold")
    (made / "cold.pyz").write_bytes(zipapp_bytes(MAIN, module_files("pagecage.eviction").values()))
    (made / "map.py").write_text(MAP)
    host.push([made / "cold.pyz", made / "map.py"], "/opt/cold-test")
    shell(
        host,
        f"mkdir -p {FOLDER}/lower {FOLDER}/upper {FOLDER}/work {FOLDER}/merged\n"
        f"chmod 755 {FOLDER} /opt/cold-test\n"
        f"for name in lower/below upper/above plain; do\n"
        f"    head -c {SIZE} /dev/urandom > {FOLDER}/$name; cat {FOLDER}/$name > /dev/null\n"
        "done\n"
        f"mount -t overlay overlay {FOLDER}/merged"
        f" -o lowerdir={FOLDER}/lower,upperdir={FOLDER}/upper,workdir={FOLDER}/work",
    )
    yield FOLDER
    shell(host, f"umount {FOLDER}/merged; rm -r {FOLDER} /opt/cold-test")


def made_cold(host: VmHost, path: str, user: str = "root") -> dict[str, Any]:
    command = f"python3 /opt/cold-test/cold.pyz {path}"
    done = shell(host, f"runuser -u {user} -- {command}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("name", "filesystem", "method"),
    [
        ("plain", "ext4", "cachestat"),
        ("merged/below", "overlay", "mincore"),
        ("merged/above", "overlay", "mincore"),
    ],
)
def test_the_disk_delivers_a_cold_file_again(
    host: VmHost, folder: str, name: str, filesystem: str, method: str
) -> None:
    """cachestat(2) counts no page of a file on overlayfs, so mincore(2) must."""
    shell(host, f"cat {folder}/{name} > /dev/null")
    found = made_cold(host, f"{folder}/{name}")
    assert (found["pages_before"], found["pages_after"]) == (PAGES, 0), found
    assert (found["files"][0]["filesystem"], found["method"]) == (filesystem, method)
    assert found["delivered"] == pytest.approx(SIZE, rel=0.05)


@pytest.fixture
def mappers(host: VmHost, folder: str) -> Iterator[list[str]]:
    """Options of processes to start: each maps the plain file."""
    units: list[str] = []
    yield units
    shell(host, "".join(f"systemctl stop {unit}\n" for unit in units))


def start_mapper(host: VmHost, units: list[str], path: str, *options: str) -> None:
    units.append(f"cold-mapper-{len(units)}.service")
    words = " ".join(["python3", "/opt/cold-test/map.py", path, *options])
    shell(
        host,
        f"rm -f {path}.mapped; systemd-run --quiet --collect --unit={units[-1]}"
        f" -p LimitMEMLOCK=infinity {words}\n"
        f"for _ in $(seq 100); do [ -e {path}.mapped ] && exit; sleep 0.1; done; exit 1",
    )


def test_pages_of_one_running_process_are_paged_out(
    host: VmHost, folder: str, mappers: list[str]
) -> None:
    start_mapper(host, mappers, f"{folder}/plain")
    found = made_cold(host, f"{folder}/plain")
    assert found["pages_after"] == 0, found
    assert "process_madvise" in found["files"][0]["evicted_by"]
    assert found["delivered"] == pytest.approx(SIZE, rel=0.05)


@pytest.mark.parametrize("options", [(), ("locked",)])
def test_pages_that_stay_are_told(
    host: VmHost, folder: str, mappers: list[str], options: tuple[str, ...]
) -> None:
    """Two processes share the pages; or one has locked them."""
    for _ in range(1 if options else 2):
        start_mapper(host, mappers, f"{folder}/plain", *options)
    found = made_cold(host, f"{folder}/plain")
    assert found["pages_after"] == PAGES
    reason = "locked it in memory" if options else "the kernel keeps pages that several processes"
    assert f"{PAGES:,} of {PAGES:,} pages stay: mapped by python3 (pid " in found["error"]
    assert reason in found["error"]


def test_another_user_is_told_what_the_kernel_hides(host: VmHost, folder: str) -> None:
    error = made_cold(host, f"{folder}/plain", "bench")["error"]
    assert "belongs to another user and is read-only, so the kernel hides its pages" in error
    shell(host, f"install -d -m 700 {folder}/closed")
    error = made_cold(host, f"{folder}/closed", "bench")["error"]
    assert "cannot be read: Permission denied" in error
    shell(host, f"install -o bench -m 600 {folder}/plain {folder}/own; sync {folder}/own")
    assert made_cold(host, f"{folder}/own", "bench")["pages_after"] == 0


def test_tmpfs_is_refused(host: VmHost, folder: str) -> None:
    error = made_cold(host, "/opt/cold-test/../../run")["error"]
    assert "is on tmpfs, whose files are the page cache itself" in error
