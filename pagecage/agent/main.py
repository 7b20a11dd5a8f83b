"""The agent's entry: `run` serves a request line, `facts` describes the host, `sweep` undoes what a killed run left."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from pagecage.agent.facts import find_systemd, read_facts
from pagecage.agent.interruption import Interrupted, Interruption
from pagecage.agent.request import request_from_json
from pagecage.agent.session import serve, sweep
from pagecage.agent.stream import Stream
from pagecage.errors import EXIT_FAILED, EXIT_HOST, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, PagecageError


def _end_with_controller() -> None:
    """When standard input closes the controller is gone, and nobody waits for the rest."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run() -> int:
    # Unbuffered, so that the watcher below sees the end of the input and nothing is read ahead of it.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        request = request_from_json(json.loads(stdin.readline()))
    interruption = Interruption()
    interruption.listen()
    threading.Thread(target=_end_with_controller, daemon=True).start()
    stream = Stream(sys.stdout.buffer)
    try:
        serve(request, stream, interruption)
    except Interrupted:
        return EXIT_INTERRUPTED
    except PagecageError as error:
        stream.event("error", message=error.message, hint=error.hint)
        return error.exit_code
    except BrokenPipeError:
        return EXIT_INTERRUPTED
    except OSError as error:
        what = f"{error.filename or 'the host'}: {error.strerror}"
        stream.event("error", message=what, hint="look at that path on the host")
        return EXIT_HOST
    return EXIT_OK


def main(argv: list[str]) -> int:
    """`run`, or `facts DATA_DIR [user]`, or `sweep SPOOL_DIR [user]`; an exit status of docs/FORMAT.md."""
    if argv[:1] == ["run"]:
        return _run()
    if len(argv) in (2, 3) and argv[0] in ("facts", "sweep"):
        user = argv[2:] == ["user"]
        if argv[0] == "facts":
            print(json.dumps(read_facts(Path(argv[1]), user)))
        else:
            print(json.dumps(sweep(find_systemd(user), Path(argv[1]))))
        return EXIT_OK
    print("usage: agent.pyz run | facts DATA_DIR [user] | sweep SPOOL_DIR [user]", file=sys.stderr)
    return EXIT_USAGE if argv else EXIT_FAILED
