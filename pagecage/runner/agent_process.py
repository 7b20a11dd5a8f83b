"""The process of an agent: its request, and its end."""

from __future__ import annotations

import json
from contextlib import suppress

from pagecage.agent.protocol.request import RunRequest, request_to_json
from pagecage.hosts.host import AgentHost, MachineState
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.process import Process, TimeoutExpired
from pagecage.runner.run_folder import RunFolder

AGENT_EXIT_SECONDS = 60.0
"""Longest silence of an agent after a request to end, and the time that it then has."""


def request_for(
    plan: Plan,
    folder: RunFolder,
    host: AgentHost,
    state: MachineState,
    trials: tuple[Trial, ...],
    agent_sha256: str,
) -> RunRequest:
    """Return an agent's request for these trials, each with the number of its next attempt."""
    harness = {key: plan.document["harness"][key] for key in ("version", "git_revision")}
    next_attempts = folder.next_attempts()
    return RunRequest(
        run_id=plan.run_id,
        plan_sha256=plan.sha256,
        host=host.name,
        data_dir=host.data_dir,
        spool_dir=host.spool_dir,
        records_path=f"{host.spool_dir}/{plan.run_id}.jsonl",
        programs_dir=f"{host.spool_dir}/bin",
        user=host.user,
        machine=vars(state),
        harness={**harness, "agent_sha256": agent_sha256},
        trials=trials,
        attempts={one.trial_id: next_attempts.get(one.trial_id, 1) for one in trials},
        disks=dict(host.disks),
        own_disk=host.own_disk,
        own_programs=plan.document.get("own_programs", {}),
    )


def send_request(process: Process[bytes], request: RunRequest) -> None:
    """Write the request. If the agent has ended already, its standard error has the reason."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request_to_json(request)).encode() + b"\n")
    except BrokenPipeError:
        close_input(process)


def close_input(process: Process[bytes]) -> None:
    """Close the agent's standard input, which tells it to end."""
    with suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()


def wait_for_agent(process: Process[bytes]) -> int:
    """Wait for the agent to end and return its status. It is killed after a minute.

    The host's next start cleans up after a killed agent.
    """
    close_input(process)
    try:
        return process.wait(AGENT_EXIT_SECONDS)
    except TimeoutExpired:
        process.kill()
        return process.wait()
