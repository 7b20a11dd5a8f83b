"""The process that executes a custom section of a report (analysis/views/render.py)."""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.views.render import run_section
from pagecage.errors import EXIT_OK, PagecageError


def main(verb: str, run: str, source: str, out: str, *include: str) -> int:
    """Execute the cells in `source`, and write them to `out`; return the exit status."""
    assert verb == "section"
    names = [option.removeprefix("--include=") for option in include]
    try:
        run_section(Path(run), Path(source), Path(out), names)
    except PagecageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
