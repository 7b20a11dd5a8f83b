"""The agent's command line. `_USAGE` lists its verbs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from pagecage.agent.facts import find_systemd, read_facts
from pagecage.agent.host_session import Tracers, sweep
from pagecage.agent.protocol import (
    AnswerQueue,
    FileStream,
    FrameStream,
    RunRequest,
    ShellRequest,
    request_from_json,
)
from pagecage.agent.session import Standby, serve
from pagecage.agent.shell import run_shell
from pagecage.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    PagecageError,
)
from pagecage.linux.child_processes import Interrupted, Interruption
from pagecage.model.json_codec import from_json

_USAGE = """usage: agent.pyz run
       agent.pyz standby SPOOL_DIR DATA_DIR [TRACER...]
       agent.pyz serve REQUEST STREAM
       agent.pyz shell REQUEST
       agent.pyz facts DATA_DIR [user]
       agent.pyz sweep SPOOL_DIR [user]"""


def _end_with_controller(inbox: AnswerQueue) -> None:
    """Queue the controller's answers. Terminate this agent when standard input closes."""
    with open(0, "rb", closefd=False) as stdin:
        for line in stdin:
            inbox.put_line(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _run(tracers: Tracers | None = None) -> int:
    # Unbuffered, because the thread below reads the rest of the input.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line.endswith(b"\n"):  # the controller has ended before it could ask
        return EXIT_INTERRUPTED
    request = request_from_json(json.loads(line))
    interruption = Interruption()
    interruption.listen()
    inbox, stream = AnswerQueue(), FrameStream(sys.stdout.buffer)
    try:
        threading.Thread(target=_end_with_controller, args=(inbox,), daemon=True).start()
    except RuntimeError as error:
        stream.event("error", message=str(error), hint="end other processes of this host")
        return EXIT_HOST
    return _work(request, stream, interruption, inbox, tracers)


def _serve(request_file: Path, stream_file: Path) -> int:
    """Run a request without a controller; frames go to a file, and only a signal ends it early."""
    request = request_from_json(json.loads(request_file.read_bytes()))
    interruption = Interruption()
    interruption.listen()
    with stream_file.open("xb") as out:
        return _work(request, FileStream(out), interruption, AnswerQueue(has_controller=False))


def _work(
    request: RunRequest,
    stream: FrameStream,
    interruption: Interruption,
    inbox: AnswerQueue,
    tracers: Tracers | None = None,
) -> int:
    try:
        serve(request, stream, interruption, inbox, tracers)
    except Interrupted:
        return EXIT_INTERRUPTED
    except PagecageError as error:
        stream.event("error", message=error.message, hint=error.hint)
        return error.exit_code
    except BrokenPipeError:
        return EXIT_INTERRUPTED
    except OSError as error:
        message = f"{error.filename or 'the host'}: {error.strerror}"
        stream.event("error", message=message, hint="check this path on the host")
        return EXIT_HOST
    return EXIT_OK


def _shell(request: str) -> int:
    try:
        return run_shell(from_json(ShellRequest, json.loads(request)))
    except PagecageError as error:
        print(f"pagecage: {error}", file=sys.stderr)
        return error.exit_code


def main(argv: list[str]) -> int:
    if argv[:1] == ["run"]:
        return _run()
    if len(argv) >= 3 and argv[0] == "standby":
        # Wait for a client, run its request as `run` does, and send it the exit status.
        standby = Standby(Path(argv[1]), Path(argv[2]), argv[3:])
        status = EXIT_FAILED
        with standby.accept():
            try:
                status = _run(standby.tracers)
            finally:
                standby.finish(status)
        return status
    if len(argv) == 3 and argv[0] == "serve":
        return _serve(Path(argv[1]), Path(argv[2]))
    if len(argv) == 2 and argv[0] == "shell":
        return _shell(argv[1])
    if len(argv) in (2, 3) and argv[0] in ("facts", "sweep"):
        user = argv[2:] == ["user"]
        if argv[0] == "facts":
            print(json.dumps(read_facts(Path(argv[1]), user)))
        else:
            print(json.dumps(sweep(find_systemd(user), Path(argv[1]))))
        return EXIT_OK
    print(_USAGE, file=sys.stderr)
    return EXIT_USAGE if argv else EXIT_FAILED
