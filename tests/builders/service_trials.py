"""Trials of services on the fake host: a shell script as the server, another as the load."""

from __future__ import annotations

import io
import socket
from typing import Any

from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec, Workload
from tests.builders import trial_runs
from tests.builders.command_trials import bare_trial
from tests.fake_host.machine import Machine

SERVES = "echo serving; exec sleep 60"
TPS = {"tps": MetricPattern("tps = ([0-9.]+)")}


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def listens(port: int) -> str:
    """Return a command that listens on this port for a minute."""
    listen = f's = socket.create_server(("127.0.0.1", {port}))'
    return f"python3 -S -c 'import socket, time; {listen}; time.sleep(60)'"


def carry_out(
    machine: Machine,
    load: str = "echo tps = 1",
    server: str = SERVES,
    command: CommandSpec = CommandSpec(ready_when="^serving$", is_literal=True),  # noqa: B008 - frozen
    out: io.BytesIO | None = None,
    trial: Json | None = None,
    argv: tuple[str, ...] | None = None,
    **changes: Any,
) -> Record:
    """Run a trial of `sh -c server` under `sh -c load`; return its record.

    `changes` are fields of the service, `trial` those of the trial. `argv` replaces `sh -c load`.
    """
    service = ServiceSpec(**{"load": argv or ("sh", "-c", load), "metrics": TPS, **changes})
    workload = Workload("sh", ("-c", server), "service", command=command, service=service)
    return trial_runs.carry_out(machine, bare_trial(workload, **(trial or {})), out=out)
