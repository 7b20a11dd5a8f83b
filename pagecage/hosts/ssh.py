"""Reaching a host by OpenSSH: the options, the argv that runs a command there, and copying files in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostDied
from pagecage.process import PIPE, replay, spawn


@dataclass(frozen=True)
class SshTarget:
    """An account on a host, the key that opens it and the file that knows the host's key.

    `host_key_alias` is the name in `known_hosts` (ssh_config(5), HostKeyAlias), `control_path` a socket through which
    commands share one connection, where somebody keeps one open.
    """

    address: str
    port: int
    user: str
    identity: Path
    known_hosts: Path
    host_key_alias: str
    control_path: Path | None = None


def ssh_options(target: SshTarget) -> list[str]:
    """All options of ssh but the shared connection's."""
    return [*ssh_settings(target), "-p", str(target.port)]


def ssh_settings(target: SshTarget) -> list[str]:
    """The settings by which ssh and Ansible reach the target: our key, its pinned key, nothing from ~/.ssh.

    curve25519 and AES-GCM because they are what an emulated CPU does quickest among what both ends know.
    """
    settings = {
        "BatchMode": "yes", "IdentitiesOnly": "yes", "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(target.known_hosts), "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": target.host_key_alias, "HostKeyAlgorithms": "ssh-ed25519", "LogLevel": "ERROR",
        "KexAlgorithms": "curve25519-sha256", "Ciphers": "aes128-gcm@openssh.com", "PasswordAuthentication": "no",
        "ConnectTimeout": "10", "ServerAliveInterval": "15", "ServerAliveCountMax": "4",
    }  # fmt: skip
    options = ["-F", "none", "-i", str(target.identity)]
    for name, value in settings.items():
        options += ["-o", f"{name}={value}"]
    return options


def ssh_argv(target: SshTarget, argv: Sequence[str], *, tty: bool = False) -> list[str]:
    """The local argv that runs `argv` on the target, its words kept whole; with none, a login shell."""
    shared = ["-S", str(target.control_path)] if target.control_path else []
    terminal = ["-t"] if tty else []
    command = [shlex.join(argv)] if argv else []
    return ["ssh", *ssh_options(target), *shared, *terminal, f"{target.user}@{target.address}", *command]


def master_argv(target: SshTarget) -> list[str]:
    """The ssh that holds the shared connection open; it dies with the process that started it (setpriv(1))."""
    options = [*ssh_options(target), "-M", "-N", "-S", str(target.control_path)]
    return ["setpriv", "--pdeathsig", "KILL", "ssh", *options, f"{target.user}@{target.address}"]


def push(target: SshTarget, sources: Sequence[Path], directory: str) -> None:
    """Copy files into a directory of the target, made if missing; names and executable bits are kept.

    One tar stream through one connection; none without sources. Raises HostDied when the connection breaks.
    """
    if not sources:
        return
    words = [word for path in sources for word in ("-C", str(path.parent), path.name)]
    pack = spawn(["tar", "-cf", "-", "--owner=0", "--group=0", *words], stdout=PIPE)
    unpack = f"mkdir -p {shlex.quote(directory)} && tar -xf - --no-same-owner -C {shlex.quote(directory)}"
    argv = ssh_argv(target, ["sh", "-c", unpack])
    send = spawn(argv, stdin=pack.stdout)
    if pack.stdout:
        pack.stdout.close()
    if send.wait() != 0 or pack.wait() != 0:
        raise HostDied(f"copying files to {target.host_key_alias} failed", f"see why: {replay(argv)}")
