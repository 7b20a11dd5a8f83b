"""A systemd of its own on this machine, as process 1 of new namespaces.

Its cgroups have no controllers if the machine gives them to cgroup v1, so it serves to measure what
units cost, not to limit anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pagecage.errors import HostError
from pagecage.process import run

_SYSTEMD = "/lib/systemd/systemd"
_ENTER = f"""
set -e
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system
cp "$1" /run/systemd/system/bench.service
exec env container=other {_SYSTEMD} --system --unit=bench.service --log-target=null --show-status=no
"""
_SERVICE = """
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
StandardOutput=file:{folder}/out
StandardError=file:{folder}/err
ExecStart=/bin/sh {folder}/command
"""


def run_under_systemd(argv: Sequence[str | Path], folder: Path, timeout_seconds: float) -> str:
    """Run a command in a service of a new systemd; return what it printed.

    Raises HostError if it failed. `folder` keeps its output and must have no space in its path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = f"{shlex.join(map(str, argv))}\necho $? >{folder}/status\n"
    (folder / "status").unlink(missing_ok=True)
    (folder / "command").write_text(script)
    (folder / "bench.service").write_text(_SERVICE.format(folder=folder))
    unshare = ["unshare", "--mount", "--cgroup", "--uts", "--ipc", "--pid", "--fork"]
    entered = [*unshare, "--mount-proc", "sh", "-c", _ENTER, "sh", str(folder / "bench.service")]
    run(entered, check=False, timeout_seconds=timeout_seconds)
    if not (folder / "status").exists() or (folder / "status").read_text().strip() != "0":
        words = (folder / "err").read_text() if (folder / "err").exists() else "systemd did not run"
        raise HostError(f"{argv[0]} failed under systemd: {words.strip()[-500:]}")
    return (folder / "out").read_text()
