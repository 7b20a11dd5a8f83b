"""The guest as a machine: the result of a restore, and the effects of the roles."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.checkout import TOP
from pagecage.errors import HostError
from pagecage.hosts.ssh import ssh_argv
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import read_guest
from pagecage.hosts.vm.image_build import WITHOUT_AGENT, run_on_guest
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import run
from tests.builders.known import known
from tests.builders.programs import install

pytestmark = pytest.mark.vm
AGENT_COMES_LATER = ["-e", '{"inspection_agent_dir": ""}']
RANDOM = ["od", "-An", "-N16", "-tx1", "/dev/urandom"]


def output_of(host: VmHost, *argv: str) -> str:
    return run(host.command(argv)).stdout.strip()


def test_it_is_a_systemd_machine_with_all_that_is_measured_by(host: VmHost) -> None:
    assert output_of(host, "cat", "/proc/1/comm") == "systemd"
    assert {"cpu", "io", "memory"} <= set(
        output_of(host, "cat", "/sys/fs/cgroup/cgroup.controllers").split()
    )
    output_of(host, "test", "-r", "/sys/kernel/btf/vmlinux")
    assert output_of(host, "systemctl", "--failed", "--no-legend", "--plain") == ""
    assert output_of(host, "swapon", "--noheadings") == ""


def test_nothing_starts_by_itself(host: VmHost) -> None:
    """Masked timers stay in the list while they are loaded; none may have a next time."""
    timers = json.loads(output_of(host, "systemctl", "list-timers", "--all", "--output=json"))
    assert [timer["unit"] for timer in timers if timer["next"]] == []


def test_words_status_and_input_pass_through(host: VmHost) -> None:
    words = ["a b", "$HOME", "it's", "*"]
    assert output_of(host, "printf", "%s\\n", *words).splitlines() == words
    argv = host.command(["sh", "-c", "read line; echo $line >&2; exit 7"])
    done = run(argv, input_text="go\n", check=False)
    assert (done.status, done.stderr) == (7, "go\n")


def test_the_guest_has_no_way_out(host: VmHost) -> None:
    assert output_of(host, "ip", "route", "show", "default") == ""
    probe = "timeout 5 bash -c 'exec 3<>/dev/tcp/10.0.2.2/22'"
    assert not run(host.command(["sh", "-c", probe]), check=False).ok


def test_only_the_guests_own_key_opens_and_is_believed(host: VmHost, tmp_path: Path) -> None:
    direct = replace(host.target, control_path=None)
    assert run(ssh_argv(direct, ["true"])).ok
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"])
    stranger = run(ssh_argv(replace(direct, identity=tmp_path / "other"), ["true"]), check=False)
    assert stranger.status == 255
    assert "Permission denied (publickey)" in stranger.stderr
    public = (tmp_path / "other.pub").read_text()
    (tmp_path / "known").write_text(f"{direct.host_key_alias} {public}")
    impostor = run(ssh_argv(replace(direct, known_hosts=tmp_path / "known"), ["true"]), check=False)
    assert impostor.status == 255
    assert "Host key verification failed" in impostor.stderr


def test_the_data_disk_is_read_past_the_page_cache_of_the_outer_host(host: VmHost) -> None:
    guest = known(read_guest(GuestCache.of_user()))
    disk = GuestCache.of_user().data_disk
    fds = [fd for fd in Path(f"/proc/{guest.pid}/fd").iterdir() if fd.resolve() == disk]
    assert fds, "QEMU has not opened the data disk"
    for fd in fds:
        text = Path(f"/proc/{guest.pid}/fdinfo/{fd.name}").read_text()
        flags = text.split("flags:")[1].split()[0]
        assert int(flags, 8) & os.O_DIRECT, f"opened with flags {flags}"
    assert "noatime" in output_of(host, "findmnt", "--noheadings", "--output", "OPTIONS", "/data")


def test_files_are_pushed_with_name_and_executable_bit(host: VmHost, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    program = install(tmp_path / "program with a space", "#!/bin/sh\necho ran\n")
    host.push([tmp_path / "plain", program], f"{host.spool_dir}/new/place")
    place = f"{host.spool_dir}/new/place"
    assert output_of(host, f"{place}/{program.name}") == "ran"
    assert output_of(host, "cat", f"{place}/plain") == "text"
    assert output_of(host, "stat", "-c", "%A %U", f"{place}/plain") == "-rw-r--r-- root"


def test_a_restore_is_the_same_machine_with_its_own_time_and_random_numbers(host: VmHost) -> None:
    output_of(host, "sh", "-c", "echo kept > /data/kept; echo gone > /root/gone")
    boot_id = output_of(host, "cat", "/proc/sys/kernel/random/boot_id")
    random = output_of(host, *RANDOM)
    first = host.restart()
    before, inside, after = time.time(), float(output_of(host, "date", "+%s.%N")), time.time()
    second_random = output_of(host, *RANDOM)
    second = host.restart()
    assert (first.state_id, second.restore_seq) == (second.state_id, (first.restore_seq or 0) + 1)
    assert output_of(host, "cat", "/proc/sys/kernel/random/boot_id") == boot_id
    assert len({random, second_random, output_of(host, *RANDOM)}) == 3
    assert "reseeded due to virtual machine fork" in output_of(host, "dmesg")
    error_seconds = first.details["clock_error_seconds"]
    assert error_seconds < 0.5
    assert before - error_seconds <= inside <= after
    assert output_of(host, "cat", "/data/kept") == "kept"
    assert not run(host.command(["test", "-e", "/root/gone"]), check=False).ok


def test_what_a_guest_writes_never_reaches_the_saved_state(host: VmHost) -> None:
    cache = GuestCache.of_user()
    guest = known(read_guest(cache))
    disk = cache.states / guest.state_id.split("-")[0] / "disk.qcow2"
    before = hashlib.sha256(disk.read_bytes()).hexdigest()
    output_of(host, "sh", "-c", "head -c 4M /dev/urandom > /root/noise && sync")
    host.restart()
    assert hashlib.sha256(disk.read_bytes()).hexdigest() == before


def test_the_machine_around_it_is_seen(host: VmHost) -> None:
    before = host.outer_sample()
    output_of(host, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done")
    after = host.outer_sample()
    used = after["qemu_cpu_seconds"] - before["qemu_cpu_seconds"]
    assert 0 < used < 60
    assert after["cpu_seconds"]["user"] >= before["cpu_seconds"]["user"] + used / 4
    assert after["unix_seconds"] > before["unix_seconds"]


@pytest.mark.long
def test_a_second_fitting_changes_nothing(host: VmHost, tmp_path: Path) -> None:
    assert run_on_guest(TOP, tmp_path, host.target, "site.yml", WITHOUT_AGENT).changed == 0


@pytest.mark.parametrize(
    ("breaking", "complaint"),
    [
        ("true", ""),
        pytest.param(
            "mv /usr/bin/fio /usr/bin/fio.away", "missing tool fio", marks=pytest.mark.slow
        ),
        pytest.param(
            (
                "echo Delegate=memory >> /etc/systemd/system/user@.service.d/50-pagecage.conf; sed"
                " -i s/io// /etc/systemd/system/user@.service.d/50-pagecage.conf; systemctl"
                " daemon-reload; systemctl restart user@1000.service"
            ),
            "io is not delegated to bench",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["as-fitted", "tool-missing", "delegation-missing"],
)
def test_verify_tells_what_is_missing(
    host: VmHost, tmp_path: Path, breaking: str, complaint: str
) -> None:
    try:
        output_of(host, "sh", "-c", breaking)
        if complaint:
            with pytest.raises(HostError, match=complaint):
                run_on_guest(TOP, tmp_path, host.target, "verify.yml", AGENT_COMES_LATER)
        else:
            run_on_guest(TOP, tmp_path, host.target, "verify.yml", AGENT_COMES_LATER)
    finally:
        if complaint:
            host.restart()


def put_data_on(host: VmHost, scratch: Path, device: str) -> int:
    settings = json.dumps({"pagecage_data_dir": "/mnt/data", "pagecage_data_device": device})
    return run_on_guest(
        TOP, scratch, host.target, "site.yml", ["--tags", "storage", "-e", settings]
    ).changed


@pytest.mark.slow
def test_a_disk_that_holds_something_else_is_refused(host: VmHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is mounted at /data"):
        put_data_on(host, tmp_path, "/dev/vdb")
    assert output_of(host, "findmnt", "--noheadings", "--output", "SOURCE", "/data") == "/dev/vdb"


@pytest.mark.long
def test_a_blank_disk_is_taken_once_and_kept(host: VmHost, tmp_path: Path) -> None:
    """A file system with pagecage's label is used as it is, with its contents; one with another
    label is refused.
    """
    loop = output_of(
        host, "sh", "-c", "truncate -s 64M /dev/shm/blank && losetup --find --show /dev/shm/blank"
    )
    assert put_data_on(host, tmp_path, loop) > 0
    output_of(host, "sh", "-c", "echo kept > /mnt/data/kept")
    assert put_data_on(host, tmp_path, loop) == 0
    assert output_of(host, "cat", "/mnt/data/kept") == "kept"
    output_of(host, "sh", "-c", f"umount /mnt/data && e2label {loop} somebodys")
    with pytest.raises(HostError, match="not blank"):
        put_data_on(host, tmp_path, loop)
    host.restart()


@pytest.mark.long
def test_the_agent_role_installs_what_was_built(host: VmHost, tmp_path: Path) -> None:
    words = ["--tags", "agent", "-e", f"agent_build_dir={tmp_path}"]
    with pytest.raises(HostError, match=r"agent.pyz does not exist"):
        run_on_guest(TOP, tmp_path, host.target, "site.yml", words)
    (tmp_path / "bin").mkdir()
    for name in ("agent.pyz", "bin/pcread"):
        (tmp_path / name).write_text("#!/bin/sh\necho ran\n")
    run_on_guest(TOP, tmp_path, host.target, "site.yml", words)
    assert output_of(host, "/opt/pagecage/bin/pcread") == "ran"
    assert output_of(host, "/opt/pagecage/agent.pyz") == "ran"


def test_an_ordinary_user_can_cap_io(host: VmHost) -> None:
    script = (
        "export XDG_RUNTIME_DIR=/run/user/1000; systemctl --user set-property --runtime"
        " pagecage-t.slice 'IOReadBandwidthMax=/data 20000000' && systemctl --user start"
        " pagecage-t.slice && cat"
        " /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
        "/pagecage.slice/pagecage-t.slice/io.max;"
        " systemctl --user stop pagecage-t.slice; systemctl --user revert pagecage-t.slice >"
        " /dev/null"
    )
    assert "rbps=20000000" in output_of(
        host, "setpriv", "--reuid=1000", "--regid=1000", "--init-groups", "sh", "-c", script
    )
