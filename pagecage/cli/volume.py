"""`pagecage volume`: a simulated volume on this machine, and the check of what it does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from pagecage.agent.volume_server import CONTROL_SOCKET, send_command
from pagecage.checkout import TOP
from pagecage.cli.output import Json, examples
from pagecage.errors import EXIT_OK, HostError, PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.hosts.volume_drive import (
    CreditsResult,
    DrivenVolume,
    DriveResult,
    Load,
    drive,
    drive_credits,
    served_volume,
)
from pagecage.model.cage import Cage, cage_to_json
from pagecage.model.json_codec import JsonView
from pagecage.model.volume_model import dilated, volume_model
from pagecage.planning.cage_choice import choose_cage
from pagecage.planning.options import Duration, VolumeOptions, whole
from pagecage.planning.run_plan import harness
from pagecage.terminal import notify
from pagecage.units import KIB, MIB, format_bytes, format_seconds

_LOADS = (
    *(("randread", 4 * KIB, depth) for depth in (1, 4, 16, 64)),
    *(("randread", 256 * KIB, depth) for depth in (1, 16)),
    ("read", MIB, 16),
    ("randwrite", 4 * KIB, 16),
    ("write", MIB, 16),
    ("randrw", 16 * KIB, 16),
)
_DRAIN_SECONDS = 5.0
_WIDTH = 100
"""A narrower terminal wraps the lines of the table, but not its cells."""
_CheckTime = Annotated[Duration, Parameter(validator=Number(gte=1, lte=600), show_default=False)]


def check(
    name: str,
    /,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    *,
    time: _CheckTime = 10.0,
    dilate: Annotated[float, Parameter(validator=Number(gte=1), metavar="FACTOR")] = 1.0,
    repeats: Annotated[int, whole(1, 30)] = 1,
    as_json: Json = False,
) -> int:
    """Drive a simulated volume on this machine, and compare it with its own model.

    fio keeps requests in flight: on a block device if you are root, else over a socket. The table
    shows rates and latencies as they were set and as they were measured.

    Parameters
    ----------
    name
        Cage, volume type (aws-gp3) or named size (azure-p10); see `pagecage cage list`
    time
        Length of each load (default: 10s)
    dilate
        Factor by which the volume is slowed down
    repeats
        Repeats of each load, with other seeds
    """
    cage = choose_cage(name, volume, None)
    cage, loads = replace(dilated(cage, dilate), enforced_by="volume"), len(_LOADS) * repeats
    notify(f"driving {loads} loads, about {format_seconds(loads * (time + 1.0))}")
    with served_volume(TOP / "build/host/lib") as driven:
        results = list(_results(driven, cage, time, repeats))
        credits_ = list(drive_credits(driven, volume_model(cage, 1), _DRAIN_SECONDS))
    if as_json:
        print(json.dumps(to_json(cage, driven.path, results, credits_)))
        return EXIT_OK
    console = Console(width=max(_WIDTH, Console().width))
    console.print(table(results))
    for one in credits_:
        console.print(_describe_credits(one), soft_wrap=True)
    return EXIT_OK


def _results(
    driven: DrivenVolume, cage: Cage, seconds: float, repeats: int
) -> Iterator[DriveResult]:
    kind = driven.path["kind"]
    notify(
        "path: the volume's socket, whose latency is part of the result"
        if kind == "socket"
        else f"path: {kind}, whose {driven.path['latency_us']:g} us are taken off each latency"
    )
    for repeat in range(1, repeats + 1):
        model = volume_model(cage, repeat)  # with its base rates alone
        model["limits"] = [{**limit, "credits": None} for limit in model["limits"]]
        for number, load in enumerate(_LOADS, start=1):
            if sys.stderr.isatty():
                notify(f"  {number}/{len(_LOADS)} {_describe(Load(*load))}")
            yield drive(driven, model, Load(*load), seconds)


def _describe(load: Load) -> str:
    return f"{load.pattern} {format_bytes(load.block_bytes)} x {load.depth}"


def _describe_credits(one: CreditsResult) -> str:
    if one.drain_seconds is None or one.refill_per_second is None:
        return f"credits of {one.limit}: not drained, because the burst rate was not reached"
    return (
        f"credits of {one.limit}: drained after {one.drain_seconds:.2f} s (formula"
        f" {one.expected_drain_seconds:.2f} s), refilled at {one.refill_per_second:,.0f}/s (base"
        f" rate {one.base_per_second:,.0f}/s)"
    )


def to_json(
    cage: Cage,
    path: JsonView,
    results: Sequence[DriveResult],
    credits_: Sequence[CreditsResult],
) -> JsonView:
    """Return a check as plain data (docs/FORMAT.md)."""
    loads = [
        asdict(result) | {"rate_error": result.rate_error, "littles_error": result.littles_error}
        for result in results
    ]
    return {
        "cage": cage_to_json(cage),
        "path": dict(path),
        "loads": loads,
        "credits": [asdict(one) for one in credits_],
        "harness": harness(),
    }


def table(results: Sequence[DriveResult]) -> Table:
    """Return the results as a table; a latency that was set stands in brackets."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("load", "limit", "model/s", "found/s", "error", "p50", "p99"):
        side: Literal["left", "right"] = "left" if title in ("load", "limit") else "right"
        shown.add_column(title, justify=side, no_wrap=True)
    for result in results:
        expected, error = result.expected_per_second, result.rate_error
        shown.add_row(
            _describe(result.load),
            result.limit or "latency",
            "-" if expected is None else f"{expected:,.0f}",
            f"{result.per_second:,.0f}",
            "-" if error is None else f"{100 * error:+.1f} %",
            *(_percentile(result, percentile) for percentile in (50.0, 99.0)),
        )
    return shown


def _percentile(result: DriveResult, percentile: float) -> str:
    expected = result.expected_percentiles_us
    both = [latencies[percentile] for latencies in (result.percentiles_us, expected) if latencies]
    measured, *model = (
        f"{one / 1000:,.1f} ms" if one >= 10_000 else f"{one:,.0f} us" for one in both
    )
    return f"{measured} ({model[0]})" if model else measured


EventKind = Annotated[
    Literal["pause", "degrade", "delay", "fail", "detach"],
    Parameter(metavar="KIND", show_choices=False),
]
_TAKES = {
    "pause": "for!",
    "degrade": "share! for",
    "delay": "latency! share for",
    "fail": "share for",
    "detach": "",
}
"""The options of each event; those with ! are needed."""
app = App(
    name="volume",
    help="Check, watch and disturb a simulated volume.",
    help_epilogue=examples("volume"),
)
app.command(check, help_epilogue=examples("volume check"))


@app.command(help_epilogue=examples("volume account"))
def account(*, as_json: Json = False) -> int:
    """Show what the volume has counted since the measured part began."""
    counted = send_command(_control_socket(), {"account": True})
    if as_json:
        print(json.dumps(counted))
        return EXIT_OK
    volume = counted["pcvolume"]
    print(f"{format_seconds(volume['seconds'])} of the volume's clock")
    for name in ("read", "write"):
        operations, size = counted[f"total_{name}_ops"], counted[f"total_{name}_bytes"]
        print(f"{name}s  {operations:,} operations, {format_bytes(size)}")
    for limit in volume["limits"]:
        print(
            f"{limit['layer']} {limit['unit']} ({limit['scope']})"
            f"  {limit['per_second']:,.0f} per second, requests waited in"
            f" {format_seconds(limit['exceeded_us'] / 1e6)}"
        )
    return EXIT_OK


@app.command(help_epilogue=examples("volume event"))
def event(
    kind: EventKind,
    /,
    *,
    share: Annotated[
        float | None, Parameter(metavar="SHARE", validator=Number(gt=0, lte=1))
    ] = None,
    latency: Duration | None = None,
    time: Annotated[Duration | None, Parameter(name="--for")] = None,
) -> int:
    """Disturb the simulated volume of the trial that is running.

    pause holds all I/O. degrade delivers a --share of the rates. delay adds a --latency to a
    --share of the I/Os, fail answers a --share of them with an error (EIO): all, unless given.
    detach makes every I/O fail from now on.

    Parameters
    ----------
    kind
        pause, degrade, delay, fail or detach
    share
        Share of the rates, or of the I/Os, above 0 and at most 1
    latency
        Additional latency, for example 10ms
    time
        Time after which the event ends, for example 5s; without it, it lasts
    """
    given = {"share": share, "latency": latency, "for": time}
    for name, value in given.items():
        if value is None and f"{name}!" in _TAKES[kind].split():
            raise PagecageError(f"{kind} needs --{name}", "pagecage help volume event")
        if value is not None and name not in _TAKES[kind].replace("!", "").split():
            raise PagecageError(f"{kind} does not take --{name}", f"remove --{name}")
    wanted: dict[str, Any] = {"kind": kind, "from_seconds": 0.0}
    wanted |= {"share": share or 1.0} if kind in ("degrade", "delay", "fail") else {}
    wanted |= {"latency_us": latency * 1e6} if latency is not None else {}
    wanted |= {"until_seconds": time} if time is not None else {}
    send_command(_control_socket(), {"event": wanted})
    return EXIT_OK


def _control_socket() -> Path:
    candidates = (
        sockets_dir(GuestCache.of_user()) / CONTROL_SOCKET,
        Path(LocalHost().spool_dir) / "volume" / CONTROL_SOCKET,
    )
    for path in candidates:
        if path.exists():
            return path
    message = "no trial runs on a simulated volume now"
    raise HostError(message, "pagecage replay CAGE --enforced-by volume -- COMMAND")
