"""The command line with its imports done once: each command is forked from a waiting process.

`python preloaded.py` prints `ready`, reads JSON lines {argv, cwd, stdout, stderr} and answers each
with the exit status.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from typing import Any


def become(asked: dict[str, Any]) -> int:
    """Turn this process into the command: its arguments, folder and output."""
    from pagecage.cli.main import main

    os.chdir(asked["cwd"])
    for descriptor, path in ((0, os.devnull), (1, asked["stdout"]), (2, asked["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
    sys.argv = ["pagecage", *asked["argv"]]
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def import_everything() -> None:
    """Import every module, also those of a single verb: imports are most of a command's time."""
    import pagecage

    for module in pkgutil.walk_packages(pagecage.__path__, "pagecage."):
        importlib.import_module(module.name)


def serve() -> None:
    import_everything()
    print("ready", flush=True)  # what the imports themselves write is there by now
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 120
            try:
                status = become(json.loads(line))
            except BaseException:  # noqa: BLE001 - what Python itself would print and end with
                sys.excepthook(*sys.exc_info())
                status = 1
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
