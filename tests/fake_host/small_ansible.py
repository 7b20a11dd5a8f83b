#!/usr/bin/env -S python3 -S
"""A small ansible-playbook for hosts that are folders: it plays fleet.yml and site.yml.

FAKE_RACK is the folder of the hosts. Their agents are detached and go on when this process ends, as
those of ansible/roles/campaign do.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

RACK = Path(os.environ.get("FAKE_RACK", "."))
HERE = Path(__file__).resolve().parent


def tell(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def ok(host: str, task: str, stdout: str = "", changed: bool = False) -> None:
    result = {"stdout": stdout, "changed": changed}
    tell({"_event": "v2_runner_on_ok", "task": {"name": task}, "hosts": {host: result}})


def preflight(host: str, _: dict[str, Any]) -> None:
    ok(host, "campaign : Check what the host has")
    ok(host, "campaign : Read the host's facts", (RACK / host / "spool/facts.json").read_text())


def run(host: str, variables: dict[str, Any]) -> None:
    request = variables["campaign_requests"][host]
    away = RACK / host / "fleet" / request["run_id"] / str(request["round"])
    if request["request"]:
        start(host, request, away)
    ok(host, "campaign : Start a round", changed=True)
    ok(host, "campaign : Follow the agent", follow(away, Path(request["stream"])))
    shutil.rmtree(away, ignore_errors=True)
    if away.parent.exists() and not any(away.parent.iterdir()):
        away.parent.rmdir()
    ok(host, "campaign : Remove the round's directory", changed=True)


def stop(host: str, variables: dict[str, Any]) -> None:
    request = variables["campaign_requests"][host]
    away = RACK / host / "fleet" / request["run_id"] / str(request["round"])
    away.mkdir(parents=True, exist_ok=True)
    (away / "stopped").touch()
    if is_alive(away) and (away / "pid").exists():
        os.kill(int((away / "pid").read_text()), signal.SIGTERM)
    ok(host, "campaign : Request the end of the agent", changed=True)


def start(host: str, request: dict[str, Any], away: Path) -> None:
    away.mkdir(parents=True, exist_ok=True)
    if (away / "stopped").exists():
        return
    shutil.copyfile(request["request"], away / "request.json")
    script = RACK / host / "spool/script.json"
    with (away / "stderr").open("w") as stderr, (away / "alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # the agent inherits it, and keeps it until it ends
        agent = subprocess.Popen(
            [sys.executable, "-S", HERE / "small_agent.py", script, away],
            start_new_session=True,
            stdin=-3,
            stdout=-3,
            stderr=stderr,
            pass_fds=[alive.fileno()],
        )
        (away / "pid").write_text(str(agent.pid))


def is_alive(away: Path) -> bool:
    """Return whether the agent of a round's folder runs."""
    try:
        with (away / "alive").open() as alive:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def follow(away: Path, stream: Path) -> str:
    """Copy the frames until the agent has ended; return how it ended."""
    until = time.monotonic() + 20
    while is_alive(away) and time.monotonic() < until:
        time.sleep(0.05)
    found = (away / "stream").read_bytes() if (away / "stream").exists() else b""
    with stream.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(found[file.tell() :])
    if not (away / "status").exists():
        return "the agent is gone"
    status = (away / "status").read_text()
    return "" if status == "0" else f"its agent ended with status {status}"


def provision(host: str, variables: dict[str, Any]) -> None:
    done = RACK / host / "provisioned"
    ok(host, "base : Install packages", changed=not done.exists())
    done.write_text(Path(variables["agent_file"]).name)
    ok(host, "storage : Mount the data disk", changed=False)


def main(words: list[str]) -> int:
    named = dict(pairwise(words))
    given = named.get("--extra-vars", "{}")
    variables = json.loads(Path(given[1:]).read_text() if given.startswith("@") else given)
    hosts = named["--limit"].split(",")
    if hosts == ["rack"]:
        hosts = ["left", "right"]
    play = {"preflight": preflight, "run": run, "stop": stop}.get(
        named.get("--tags", ""), provision
    )
    for host in hosts:
        play(host, variables)
    tell({"stats": {host: {"changed": 1, "failures": 0, "unreachable": 0} for host in hosts}})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
