"""Command line of the single file that is copied to a customer's machine.

Its options are those of `pagecage verify`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence

from pagecage.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.verify.page import lines
from pagecage.verify.target import Subject
from pagecage.verify.verification import Verification, verify

DEFAULT_SECONDS = 10
MOST_SECONDS = 86400
_ABOUT = (
    "Show which limits are in force for a running unit, container or process, which of the"
    " requested ones were lost, and which one bound. Nothing is driven and nothing is changed."
)
_STATUS = "Exit status: 0 every requested limit is in force; 1 one is not; 2 or 3 nothing was read."


def main(argv: Sequence[str]) -> int:
    """Verify one target and print the result; return an exit status of docs/FORMAT.md."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subject = Subject(options.unit, options.container, options.pid, options.user)
    try:
        found = verify(subject, options.seconds, expected=options.expect)
    except PagecageError as error:
        sys.stderr.write(f"pagecage-verify: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    sys.stdout.write(text_of(found, options.json))
    return EXIT_FAILED if found.failed else EXIT_OK


def text_of(found: Verification, as_json: bool) -> str:
    """Return the verification as it is printed."""
    return json.dumps(found.to_json()) + "\n" if as_json else "\n".join([*lines(found), ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=_ABOUT, epilog=_STATUS)
    parser.add_argument("--unit", help="unit of systemd, as in --unit postgresql.service")
    parser.add_argument("--container", help="name or id of a container of Docker or podman")
    parser.add_argument("--pid", type=_whole(1, 2**22), help="process")
    parser.add_argument("--user", action="store_true", help="the unit is of this user's systemd")
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="LIMIT",
        help="limit that should be in force, as in --expect 'IOReadIOPSMax=/dev/vdb 500'",
    )
    parser.add_argument(
        "--seconds",
        type=_whole(0, MOST_SECONDS),
        default=DEFAULT_SECONDS,
        help=f"time to watch the counters (default: {DEFAULT_SECONDS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return the parser of a whole number from `least` to `most`, both included."""

    def parsed(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return number

    return parsed
