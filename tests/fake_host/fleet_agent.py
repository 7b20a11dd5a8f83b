"""The scripted agent as a fleet starts it: `facts DIR`, and a detached `serve REQUEST STREAM`.

Its script (see scripted_agent.py) and its facts are beside it in the spool of its host, as
script.json and facts.json.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fake_host import scripted_agent
else:
    import scripted_agent

SPOOL = Path(sys.argv[0]).resolve().parent


class _Out:
    """Standard output of the scripted agent, written to the stream's file."""

    def __init__(self, stream: Path) -> None:
        self.buffer = io.BufferedWriter(io.FileIO(stream, "xb"))


def _until_asked_to_end() -> None:
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, ask)
    (SPOOL / "waits").touch()
    while not asked:
        time.sleep(0.02)


def main(verb: str, first: str, stream: str = "") -> int:
    """`facts` prints the facts of the test; `serve` works through the request."""
    if verb == "facts":
        print((SPOOL / "facts.json").read_text())
        return 0
    sys.stdout = _Out(Path(stream))
    scripted_agent.wait_for_the_end_of_input = _until_asked_to_end
    os.dup2(os.open(first, os.O_RDONLY), 0)
    return scripted_agent.main(SPOOL / "script.json")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
