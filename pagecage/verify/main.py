"""Entry point of verify, which runs without an installation, and its page."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence

from pagecage.errors import EXIT_GATE_FAILED, EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.model.cage import IO_MAX_KEY, MEMORY_FILE
from pagecage.units import format_bytes, format_rate, parse_seconds
from pagecage.verify.comparison import NAMES, shown_value
from pagecage.verify.kernel import disk_name
from pagecage.verify.target import Subject
from pagecage.verify.verification import LimitUse, Verification, verify

_WAITS = {"io": "I/O", "memory": "memory", "cpu": "a CPU"}


def lines(found: Verification) -> Iterator[str]:
    plural = "" if found.processes == 1 else "es"
    place = found.target.directory
    yield f"{found.target.description}: {found.processes} process{plural} in {place}"
    yield ""
    yield from _table(found)
    yield from _section("Asked for", [one.sentence(found.kernel) for one in found.comparisons])
    yield from _section(f"Counters over {found.watched.seconds:.1f} s", list(_watched(found)))
    yield from _section("Not known", found.notes)
    yield ""
    yield conclusion(found)


def conclusion(found: Verification) -> str:
    lost = [one.requested.name for one in found.comparisons if one.is_failure]
    if lost:
        verb = "is" if len(lost) == 1 else "are"
        return f"{', '.join(dict.fromkeys(lost))} {verb} not in force as asked for."
    if not found.comparisons:
        return "No limit is known to have been asked for."
    return "Every limit that is known to have been asked for is in force."


def _section(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from (f"  {row}" for row in rows)


def _table(found: Verification) -> Iterator[str]:
    rows = [("limit", "disk", "in force", "from")]
    for limit in found.effective:
        disk = disk_name(limit.maj_min, found.kernel) if limit.maj_min else "-"
        is_here = limit.file.parent == found.target.directory
        file = limit.file.name if is_here else str(limit.file)
        rows.append((limit.name, disk, shown_value(limit.name, limit.value), file))
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    if found.effective:
        for name, disk, value, file in rows:
            yield f"{name:<{widths[0]}}  {disk:<{widths[1]}}  {value:>{widths[2]}}  {file}"
    limited = {limit.name for limit in found.effective}
    missing = [name for name in NAMES if name not in limited]
    if missing:
        yield f"no limit: {', '.join(missing)}"
    disks = {limit.maj_min for limit in found.effective}
    for maj_min, count in found.used_bytes.items():
        if maj_min not in disks and limited & set(IO_MAX_KEY):
            name = disk_name(maj_min, found.kernel)
            yield f"no I/O limit on {name}, with {format_bytes(count)} of I/O so far"


def _watched(found: Verification) -> Iterator[str]:
    watched = found.watched
    if not watched.seconds:
        return
    yield from (_use_sentence(use, found) for use in watched.uses)
    waits = {_WAITS[kind]: share for kind, share in (watched.waited or {}).items()}
    known = [f"{kind} {100 * share:.0f} %" for kind, share in waits.items() if share is not None]
    if known:
        yield f"some task waited for: {', '.join(known)} of the time"
    if watched.oom_kills:
        yield f"the kernel killed for lack of memory: {watched.oom_kills} times"
    if not any(use.bound_seconds for use in watched.uses):
        yield "no limit bound"


def _use_sentence(use: LimitUse, found: Verification) -> str:
    limit, kernel, directory = use.limit, found.kernel, use.limit.file.parent
    name = limit.name + (f" of {disk_name(limit.maj_min, kernel)}" if limit.maj_min else "")
    shared = ""
    roots = (kernel.mount_of(directory), kernel.proc)
    if directory.name != found.target.directory.name and directory not in roots:
        shared = f" (shared by all of {kernel.shown(directory)})"
    if use.hits is None and limit.name in MEMORY_FILE:
        return f"{name} is not counted by this kernel{shared}"
    share = 100 * use.bound_seconds / found.watched.seconds
    verdict = f"bound for {share:.0f} % of the time" if use.bound_seconds else "did not bind"
    if use.used_share is not None and use.per_second is not None:
        is_bytes = "Bandwidth" in limit.name
        rate = format_rate(use.per_second) if is_bytes else f"{use.per_second:,.0f}"
        cap = shown_value(limit.name, limit.value) + ("" if is_bytes else " per second")
        figures = f"{rate} of {cap}, {100 * use.used_share:.0f} %"
    elif limit.name == "CPUQuota":
        figures = f"throttled in {use.hits or 0} of {use.periods or 0} periods"
    else:
        figures = f"met {use.hits:,} times"
    return f"{name} {verdict}: {figures}{shared}"


DEFAULT_SECONDS = 10.0
_MOST_SECONDS = 86400
_ABOUT = (
    "Show which limits are in force for a running unit, container or process, which of the"
    " requested ones were lost, and which one bound. Nothing is driven and nothing is changed."
)
_STATUS = "Exit status: 0 every requested limit is in force; 5 one is not; 2 or 3 nothing was read."


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subject = Subject(options.unit, options.container, options.pid, options.user)
    try:
        found = verify(subject, parse_watch(options.time), expected=options.expect)
    except PagecageError as error:
        sys.stderr.write(f"pagecage-verify: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    sys.stdout.write(text_of(found, options.json))
    return EXIT_GATE_FAILED if found.failed else EXIT_OK


def parse_watch(text: str) -> float:
    """Return the time to watch in seconds, 0 for none. Raises PagecageError for any other text."""
    if text == "0s":
        return 0.0
    seconds = parse_seconds(text, "--time")
    if seconds > _MOST_SECONDS:
        raise PagecageError(f"--time: {text} is longer than a day", "--time 10s")
    return seconds


def text_of(found: Verification, as_json: bool) -> str:
    return json.dumps(found.to_json()) + "\n" if as_json else "\n".join([*lines(found), ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=_ABOUT, epilog=_STATUS)
    parser.add_argument("--unit", help="unit of systemd, as in --unit postgresql.service")
    parser.add_argument("--container", help="name or id of a container of Docker or podman")
    parser.add_argument("--pid", type=_pid, help="process")
    parser.add_argument("--user", action="store_true", help="the unit is of this user's systemd")
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="LIMIT",
        help="limit that should be in force, as in --expect 'IOReadIOPSMax=/dev/vdb 500'",
    )
    parser.add_argument(
        "--time",
        default=f"{DEFAULT_SECONDS:g}s",
        help=f"time to watch the counters, 0s for none (default: {DEFAULT_SECONDS:g}s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _pid(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 1 <= number <= 2**22:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {2**22}")
    return number
