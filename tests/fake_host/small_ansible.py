#!/usr/bin/env -S python3 -S
"""A small ansible-playbook for hosts that are folders: it plays fleet.yml and site.yml.

FAKE_RACK is the folder of the hosts. Their agents are detached and go on when this process ends, as
those of ansible/roles/campaign do.
"""

from __future__ import annotations

import json
import os
import shutil
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


def start(host: str, request: dict[str, Any], away: Path) -> None:
    away.mkdir(parents=True)
    shutil.copyfile(request["request"], away / "request.json")
    agent = HERE / "small_agent.py"
    argv = [sys.executable, "-S", agent, RACK / host / "spool/script.json", away]
    subprocess.Popen(
        argv, start_new_session=True, stdin=-3, stdout=-3, stderr=(away / "stderr").open("w")
    )


def follow(away: Path, stream: Path) -> str:
    """Copy the frames until the agent has ended; return how it ended."""
    until = time.monotonic() + 20
    while not (away / "status").exists() and time.monotonic() < until:
        time.sleep(0.01)
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
    play = {"preflight": preflight, "run": run}.get(named.get("--tags", ""), provision)
    for host in hosts:
        play(host, variables)
    tell({"stats": {host: {"changed": 1, "failures": 0, "unreachable": 0} for host in hosts}})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
