"""Hosts over SSH, and the connection to them."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.errors import HostDied, HostError
from pagecage.hosts.vm.qemu import SSH_SOCKET
from pagecage.process import PIPE, Process, dying_with_parent, replay, spawn


@dataclass(frozen=True)
class SshTarget:
    """An account on a host, its key, and the file with the host's key (ssh_config(5)).

    `control_path` is the socket of a shared connection, if one is open.
    """

    address: str
    port: int
    user: str
    identity: Path
    known_hosts: Path
    host_key_alias: str
    control_path: Path | None = None


def ssh_settings(target: SshTarget) -> list[str]:
    """Return the settings with which ssh and Ansible connect; they use nothing from ~/.ssh.

    curve25519 and AES-GCM are the fastest on an emulated CPU among those that both sides support.
    """
    settings = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(target.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": target.host_key_alias,
        "HostKeyAlgorithms": "ssh-ed25519",
        "LogLevel": "ERROR",
        "KexAlgorithms": "curve25519-sha256",
        "Ciphers": "aes128-gcm@openssh.com",
        "PasswordAuthentication": "no",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    return ["-F", "none", "-i", str(target.identity), *options]


def ssh_argv(target: SshTarget, argv: Sequence[str], *, tty: bool = False) -> list[str]:
    """Return the local command that runs `argv` on the target; without `argv`, a login shell."""
    options = ["-S", str(target.control_path)] if target.control_path else []
    return _ssh(target, *options, *(["-t"] * tty), words=[shlex.join(argv)] if argv else [])


def master_argv(target: SshTarget) -> list[str]:
    """Return the ssh that holds the shared connection open until this process ends."""
    return dying_with_parent(_ssh(target, "-M", "-N", "-S", str(target.control_path)))


def _ssh(target: SshTarget, *options: str, words: Sequence[str] = ()) -> list[str]:
    port, account = ("-p", str(target.port)), f"{target.user}@{target.address}"
    return ["ssh", *ssh_settings(target), *port, *options, account, *words]


_IS_PRIVATE = (
    'test -z "$(find {} -maxdepth 0 \\( ! -type d -o ! -user "$(id -u)" -o -perm /022 \\))"'
)
_FOREIGN = 77  # the exit status for a directory of another user


def push(target: SshTarget, sources: Sequence[Path], directory: str) -> None:
    """Copy files to a directory of the target, created if missing; names and modes are kept.

    The files go through one tar stream. Raises HostError if the directory belongs to another user,
    because its files are run, and HostDied if the connection breaks.
    """
    if not sources:
        return
    words = [word for path in sources for word in ("-C", str(path.parent), path.name)]
    pack = spawn(["tar", "-cf", "-", "--owner=0", "--group=0", *words], stdout=PIPE)
    quoted = shlex.quote(directory)
    unpack = (
        f"mkdir -p -m 0700 {quoted} && {{ {_IS_PRIVATE.format(quoted)} || exit {_FOREIGN}; }}"
        f" && tar -xf - --no-same-owner -C {quoted}"
    )
    argv = ssh_argv(target, ["sh", "-c", unpack])
    send = spawn(argv, stdin=pack.stdout)
    if pack.stdout:
        pack.stdout.close()
    if send.wait() == _FOREIGN:
        pack.wait()
        raise HostError(
            f"{directory} on {target.host_key_alias} belongs to another user, or others can write"
            " to it",
            f"remove {directory} on that host",
        )
    if send.returncode != 0 or pack.wait() != 0:
        reason = f"copying files to {target.host_key_alias} failed"
        raise HostDied(reason, f"run it by hand: {replay(argv)}")


CONNECT_SECONDS = 60.0


class SharedConnection:
    """An ssh that holds a connection open until close(), or its context's or parent's end."""

    def __init__(
        self,
        target: SshTarget,
        sockets: Path,
        check: Callable[[], None],
        limit_seconds: float = CONNECT_SECONDS,
    ) -> None:
        """Start connecting. wait() calls `check`, which raises an error if the target has ended."""
        self.target = replace(target, control_path=sockets / SSH_SOCKET)
        self._socket, self._check, self._limit_seconds = sockets / SSH_SOCKET, check, limit_seconds
        remove_stale_socket(self._socket)
        self._master = self._spawn()

    def wait(self) -> None:
        """Wait until commands can use the connection. Raises HostError after the time limit."""
        deadline = time.monotonic() + self._limit_seconds
        while not self._socket.exists():
            self._check()
            if time.monotonic() > deadline:
                self.close()
                limit = f"{self._limit_seconds:.0f} s"
                reason = f"the guest did not answer on ssh within {limit}"
                raise HostError(reason, "pagecage host rebuild vm")
            if self._master.poll() is not None:
                time.sleep(0.1)
                self._master = self._spawn()
            time.sleep(0.005)

    def __enter__(self) -> SshTarget:
        try:
            self.wait()
        except BaseException:
            self.close()
            raise
        return self.target

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self) -> Process[bytes]:
        """Start ssh in its own session: Ctrl-C must not end it before the guest is cleaned up."""
        return spawn(master_argv(self.target), new_session=True)

    def close(self) -> None:
        """End the connection. Safe at any time."""
        self._master.kill()
        self._master.wait()


def remove_stale_socket(path: Path) -> None:
    """Remove a socket on which nobody listens: a killed ssh leaves it behind (unix(7))."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
