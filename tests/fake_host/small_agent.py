"""The scripted agent, detached, for small_ansible.py: `small_agent.py SCRIPT ROUND_FOLDER`.

Its request, its frames and its exit status are files of the round's folder.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fake_host import scripted_agent
else:
    import scripted_agent


class _Out:
    """Standard output of the scripted agent, written to the stream's file."""

    def __init__(self, stream: Path) -> None:
        self.buffer = io.BufferedWriter(io.FileIO(stream, "xb"))


def main(script: str, away: Path) -> None:
    sys.stdout = _Out(away / "stream")
    os.dup2(os.open(away / "request.json", os.O_RDONLY), 0)
    status = scripted_agent.main(Path(script))
    (away / "status.part").write_text(str(status))
    (away / "status.part").rename(away / "status")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
