"""Verify, as the single file, on programs that run in the guest under real limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagecage.hosts.agent_package import agent_bytes, write_verify_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import Completed, run
from pagecage.units import MIB

pytestmark = pytest.mark.vm
UNIT, CONTAINER = "pagecage-verified.service", "pagecage-verified"
IOPS = 200
DATA = "/data/verified"
READ_DIRECT = f"while :; do dd if={DATA} of=/dev/null bs=4k iflag=direct; done"
READ_CACHED = f"while :; do dd if={DATA} of=/dev/null bs=1M; done"
COMPUTE = "while :; do :; done"
# An image without a registry: the guest's own programs at their paths.
IMAGE = """
    root=$(mktemp -d)
    mkdir "$root/usr" "$root/data"
    for name in bin lib lib64; do ln -s "usr/$name" "$root/$name"; done
    tar -cC "$root" . | docker import - pagecage-verified > /dev/null
    rm -r "$root"
"""


def shell(host: VmHost, script: str, *, check: bool = True) -> Completed:
    return run(host.command(["sh", "-c", f"set -eu\n{script}"]), check=check, timeout_seconds=300)


@pytest.fixture(scope="module", autouse=True)
def program(host: VmHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path: Path = write_verify_package(tmp_path_factory.mktemp("verify"))
    agent = path.with_name("agent.pyz")
    agent.write_bytes(agent_bytes())
    host.push([path, agent], f"{host.spool_dir}/verify")
    shell(host, f"head -c {64 * MIB} /dev/urandom > {DATA}; sync {DATA}")
    yield
    shell(host, f"rm -f {DATA}")


def verified(host: VmHost, *words: str, seconds: int = 5) -> tuple[int, dict[str, Any]]:
    done = shell(
        host,
        f"python3 {host.spool_dir}/verify/pagecage-verify.pyz {' '.join(words)}"
        f" --time {seconds}s --json",
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.status, found


def start_unit(host: VmHost, load: str, *properties: str) -> None:
    """Start a load under limits. Its pages are its own: none is in the page cache before."""
    words = " ".join(f"-p '{one}'" for one in properties)
    shell(
        host,
        "echo 1 > /proc/sys/vm/drop_caches\n"
        f"systemd-run --quiet --collect --unit={UNIT} {words} sh -c '{load}'; sleep 2",
    )


@pytest.fixture
def unit(host: VmHost) -> Iterator[str]:
    yield UNIT
    shell(host, f"systemctl stop {UNIT}")


def test_an_iops_limit_of_a_unit_that_binds(host: VmHost, unit: str) -> None:
    start_unit(host, READ_DIRECT, f"IOReadIOPSMax=/data {IOPS}", "MemoryMax=256M")
    status, found = verified(host, "--unit", unit)
    print(json.dumps(found, indent=1))
    assert status == 0
    assert states(found) == {"IOReadIOPSMax": "in_force", "MemoryMax": "in_force"}
    uses = {one["name"]: one for one in found["bound"]}
    assert uses["IOReadIOPSMax"]["bound_seconds"] > 0.8 * found["seconds"]
    assert uses["IOReadIOPSMax"]["used_share"] == pytest.approx(1, abs=0.1)
    assert uses["MemoryMax"]["bound_seconds"] == 0


@pytest.mark.parametrize(
    ("load", "limit", "name"),
    [
        pytest.param(READ_CACHED, "MemoryMax=16M", "MemoryMax", marks=pytest.mark.slow),
        pytest.param(READ_CACHED, "MemoryHigh=16M", "MemoryHigh", marks=pytest.mark.long),
        pytest.param(COMPUTE, "CPUQuota=20%", "CPUQuota", marks=pytest.mark.slow),
    ],
)
def test_other_limits_that_bind(host: VmHost, unit: str, load: str, limit: str, name: str) -> None:
    start_unit(host, load, limit, "MemorySwapMax=0")
    status, found = verified(host, "--unit", unit)
    print(json.dumps(found, indent=1))
    [use] = [one for one in found["bound"] if one["name"] == name]
    assert status == 0
    assert use["hits"] > 0
    assert use["bound_seconds"] > 0.5 * found["seconds"]


@pytest.mark.slow
def test_a_limit_on_the_disk_without_the_data(host: VmHost, unit: str) -> None:
    start_unit(host, READ_DIRECT, f"IOReadIOPSMax=/ {IOPS}")
    status, found = verified(host, "--unit", unit, seconds=0)
    [one] = found["requested"]
    assert (status, one["state"]) == (5, "elsewhere"), one


def test_a_process_brings_the_limits_of_its_unit(host: VmHost, unit: str) -> None:
    start_unit(host, READ_DIRECT, f"IOReadIOPSMax=/data {IOPS}")
    pid = shell(host, f"systemctl show -P MainPID {unit}").stdout.strip()
    status, found = verified(host, "--pid", pid, seconds=0)
    assert (status, [one["name"] for one in found["requested"]]) == (0, ["IOReadIOPSMax"])


@pytest.fixture(scope="module")
def disk(host: VmHost) -> Iterator[str]:
    """The disk of /data; Docker runs meanwhile."""
    was_active = run(host.command(["systemctl", "is-active", "docker"]), check=False).ok
    shell(host, f"systemctl start docker\n{IMAGE}")
    yield shell(host, "findmnt -no SOURCE -T /data").stdout.strip()
    shell(host, "docker rmi --force pagecage-verified")
    if not was_active:
        shell(host, "systemctl stop docker.socket docker.service containerd.service")


RUN = (
    f"--rm --name {CONTAINER} --memory 64m --cpus 0.5 -v /usr:/usr:ro -v /data:/data"
    " --device-read-iops {}:{} pagecage-verified"
    f" sh -c '{READ_DIRECT}'"
)


@pytest.fixture
def container(host: VmHost, disk: str) -> Iterator[str]:
    yield CONTAINER
    shell(host, f"docker rm --force {CONTAINER} > /dev/null 2>&1; sleep 1")


def states(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["state"] for one in found["requested"]}


def page(host: VmHost, *words: str) -> str:
    program = f"{host.spool_dir}/verify/pagecage-verify.pyz"
    done = run(host.command(["python3", program, *words, "--time", "2s"]), check=False)
    print(done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_a_flag_that_dockers_command_line_loses(host: VmHost, container: str, disk: str) -> None:
    """Debian's 26.1.5 drops it before the engine learns of it; the running client has it still."""
    line = RUN.format(disk, IOPS)
    shell(host, f"nohup docker run {line} > /dev/null 2>&1 < /dev/null & sleep 5")
    status, found = verified(host, "--container", container)
    text = page(host, "--container", container)
    held = dict.fromkeys(("MemoryMax", "MemorySwapMax", "CPUQuota"), "in_force")
    assert {**states(found), "IOReadIOPSMax": ""} == {**held, "IOReadIOPSMax": ""}
    if status == 0:  # a version that keeps the flag
        assert states(found)["IOReadIOPSMax"] == "in_force"
        return
    assert (status, states(found)["IOReadIOPSMax"]) == (5, "lost")
    assert f"IOReadIOPSMax of {disk}: 200 asked by Docker, in force: none: LOST" in text
    assert "IOReadIOPSMax is not in force as asked for." in text


@pytest.mark.long
def test_a_detached_container_is_compared_with_what_was_typed(
    host: VmHost, container: str, disk: str
) -> None:
    shell(host, f"docker run --detach {RUN.format(disk, IOPS)} > /dev/null; sleep 2")
    silent = page(host, "--container", container)
    expected = f"IOReadIOPSMax={disk} {IOPS}"
    status, found = verified(host, "--container", container, "--expect", f"'{expected}'", seconds=0)
    if "IOReadIOPSMax of" not in silent:
        assert "--expect 'IOReadIOPSMax=/dev/vdb 500'" in silent
        assert (status, states(found)["IOReadIOPSMax"]) == (5, "lost")


CREATE = """
from pagecage.agent.drivers.docker import call
body = {"Image": "pagecage-verified", "Cmd": ["sh", "-c", "LOAD"], "HostConfig": {
    "AutoRemove": True, "Binds": ["/usr:/usr:ro", "/data:/data"],
    "BlkioDeviceReadIOps": [{"Path": "DISK", "Rate": RATE}]}}
call("POST", "/containers/create?name=NAME", body)
"""


@pytest.mark.long
def test_a_limit_by_dockers_api_binds_until_it_is_overwritten(
    host: VmHost, container: str, disk: str
) -> None:
    words = {"LOAD": READ_DIRECT, "DISK": disk, "RATE": str(IOPS), "NAME": container}
    script = CREATE
    for word, value in words.items():
        script = script.replace(word, value)
    agent = f"{host.spool_dir}/verify/agent.pyz"
    shell(
        host,
        f"PYTHONPATH={agent} python3 - <<'END'\n{script}\nEND\n"
        f"docker start {container} > /dev/null; sleep 2",
    )
    status, found = verified(host, "--container", container)
    [use] = [one for one in found["bound"] if one["name"] == "IOReadIOPSMax"]
    assert (status, states(found)) == (0, {"IOReadIOPSMax": "in_force"})
    assert use["bound_seconds"] > 0.8 * found["seconds"]
    number = found["limits"][0]["maj_min"]
    shell(host, f"echo '{number} riops=max' > {found['cgroup']}/io.max")
    status, found = verified(host, "--container", container, seconds=0)
    assert (status, states(found)) == (1, {"IOReadIOPSMax": "lost"})


OWN = "runuser -u bench -- env XDG_RUNTIME_DIR=/run/user/1000"
START_OWN = f"""
    chmod 644 {DATA}
    loginctl enable-linger bench
    for _ in $(seq 60); do [ -S /run/user/1000/systemd/private ] && break; sleep 1; done
    {OWN} systemd-run --user --quiet --unit=verified-own -p MemoryMax=64M \\
        -p 'IOReadIOPSMax=/data {IOPS}' sh -c '{READ_DIRECT}'
    sleep 2
"""


@pytest.fixture
def own_unit(host: VmHost) -> Iterator[str]:
    shell(host, START_OWN)
    yield "verified-own.service"
    shell(host, f"{OWN} systemctl --user stop verified-own.service; loginctl disable-linger bench")


@pytest.mark.long
def test_a_unit_of_a_users_own_systemd(host: VmHost, own_unit: str) -> None:
    """Limits on I/O are in force where `io` is delegated to the user, as in this guest."""
    program = f"python3 {host.spool_dir}/verify/pagecage-verify.pyz --time 0s --json"
    done = shell(host, f"{OWN} {program} --unit {own_unit} --user")
    assert states(json.loads(done.stdout)) == {"MemoryMax": "in_force", "IOReadIOPSMax": "in_force"}
    pid = shell(host, f"{OWN} systemctl --user show -P MainPID {own_unit}").stdout.strip()
    status, found = verified(host, "--pid", pid, seconds=0)
    assert status == 0
    assert found["notes"][0].startswith("The units of user 1000's own systemd were not asked")
    assert "IOReadIOPSMax" in {limit["name"] for limit in found["limits"]}


@pytest.mark.slow
def test_refusals_on_a_real_machine(host: VmHost) -> None:
    def refused(*words: str) -> str:
        argv = ["python3", f"{host.spool_dir}/verify/pagecage-verify.pyz", *words]
        done = run(host.command(argv), check=False)
        assert (done.status in (2, 3), done.stdout) == (True, ""), done
        assert len(done.stderr.splitlines()) == 2
        return done.stderr

    assert "there is no unit 'nope.service'" in refused("--unit", "nope.service")
    assert "is inactive and has no cgroup" in refused("--unit", "systemd-fsck-root.service")
    assert "there is no process 4194304" in refused("--pid", "4194304")
    assert "systemd does not answer" in refused("--unit", "a.service", "--user")
