"""`pagecage volume`: events in a simulated volume while a trial runs on it, and its account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from pagecage.agent.system.volume_server import CONTROL_SOCKET, send_command
from pagecage.cli.examples import examples
from pagecage.cli.numbers import Seconds
from pagecage.cli.output import Json
from pagecage.cli.volume_check import check
from pagecage.errors import EXIT_OK, HostError
from pagecage.hosts.local import LocalHost
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.units import format_bytes, format_seconds

app = App(
    name="volume",
    help=(
        "Change the simulated volume of the trial that is running, show its account, or check a"
        " volume against its model."
    ),
    help_epilogue=examples("volume"),
)
app.command(check, help_epilogue=examples("volume check"))
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1), metavar="SHARE")]
For = Annotated[Seconds | None, Parameter(name="--for", metavar="SECONDS")]
Microseconds = Annotated[float, Parameter(validator=Number(gt=0), metavar="US")]


@app.command(help_epilogue=examples("volume account"))
def account(*, as_json: Json = False) -> int:
    """Show what the volume has counted since the measured part began."""
    counted = send_command(_control_socket(), {"account": True})
    print(json.dumps(counted) if as_json else "\n".join(_lines(counted)))
    return EXIT_OK


@app.command(help_epilogue=examples("volume pause"))
def pause(seconds: Seconds) -> int:
    """Hold all I/O for some seconds.

    Parameters
    ----------
    seconds
        Length of the pause
    """
    return _add({"kind": "pause"}, seconds)


@app.command(help_epilogue=examples("volume degrade"))
def degrade(share: Share, *, seconds: For = None) -> int:
    """Deliver only a share of the volume's rates.

    Parameters
    ----------
    share
        Share of the rates, above 0 and at most 1
    seconds
        Seconds after which the volume delivers its rates again; without it, it does not
    """
    return _add({"kind": "degrade", "share": share}, seconds)


@app.command(help_epilogue=examples("volume delay"))
def delay(latency_us: Microseconds, *, share: Share = 1.0, seconds: For = None) -> int:
    """Add a latency to a share of the I/Os.

    Parameters
    ----------
    latency_us
        Additional latency in microseconds
    share
        Share of the I/Os, above 0 and at most 1
    seconds
        Seconds after which no I/O is delayed; without it, it lasts
    """
    return _add({"kind": "delay", "share": share, "latency_us": latency_us}, seconds)


@app.command(help_epilogue=examples("volume fail"))
def fail(*, share: Share = 1.0, seconds: For = None) -> int:
    """Answer a share of the I/Os with an error (EIO).

    Parameters
    ----------
    share
        Share of the I/Os, above 0 and at most 1
    seconds
        Seconds after which no I/O fails; without it, it lasts
    """
    return _add({"kind": "fail", "share": share}, seconds)


@app.command(help_epilogue=examples("volume detach"))
def detach() -> int:
    """Detach the volume: every I/O fails from now on."""
    return _add({"kind": "detach"}, None)


def _add(event: dict[str, Any], seconds: float | None) -> int:
    until = {} if seconds is None else {"until_seconds": seconds}
    send_command(_control_socket(), {"event": {**event, "from_seconds": 0.0, **until}})
    return EXIT_OK


def _control_socket() -> Path:
    """Return the socket of the volume in use. Raises HostError if no trial runs on one."""
    candidates = (
        sockets_dir(GuestCache.of_user()) / CONTROL_SOCKET,
        Path(LocalHost().spool_dir) / "volume" / CONTROL_SOCKET,
    )
    for path in candidates:
        if path.exists():
            return path
    raise HostError(
        "no trial runs on a simulated volume now",
        "pagecage replay CAGE --enforced-by volume -- COMMAND",
    )


def _lines(counted: dict[str, Any]) -> list[str]:
    own = counted["pcvolume"]
    lines = [f"{format_seconds(own['seconds'])} of the volume's clock"]
    for name in ("read", "write"):
        operations, size = counted[f"total_{name}_ops"], counted[f"total_{name}_bytes"]
        lines.append(f"{name}s  {operations:,} operations, {format_bytes(size)}")
    for limit in own["limits"]:
        met = format_seconds(limit["exceeded_us"] / 1e6)
        lines.append(
            f"{limit['layer']} {limit['unit']} ({limit['scope']})"
            f"  {limit['per_second']:,.0f} per second, requests waited in {met}"
        )
    return lines
