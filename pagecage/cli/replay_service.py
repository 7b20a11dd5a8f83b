"""Options of a replay of a server under load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.definitions.service_keys import wrong_metric_name
from pagecage.errors import PagecageError
from pagecage.model.services.metrics import MetricPattern, wrong_pattern
from pagecage.model.services.spec import ServiceSpec
from pagecage.units import parse_seconds

_PATH = re.compile(r"(?:(?P<name>\w+)=)?(?P<path>\$[.\[].*)", re.DOTALL)
_NAMED = re.compile(r"\(\?P<(?P<name>[^>]*)>")
_WORDS = re.compile(r"(?P<name>[^=:]*)[=:]")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of a replay of a server under load.

    Parameters
    ----------
    serve
        Server to run in the cage instead of a COMMAND; it must serve by --ready-port or
        --ready-when
    load
        Command that drives the server from outside the cage; the time from its start to its
        exit is measured
    warm_up
        Run the load for this time first, for example 10s
    settle
        Pause between the warm-up and the measured load
    metric
        Figure in the load's standard output: a regular expression with one group, named by the
        words before its first = or :, or by (?P<name>...); or name=$.json.path. May be given
        several times; the first is the main figure
    ready_timeout
        The server must serve within this time
    stop_signal
        Signal that ends the server
    """

    serve: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    load: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    warm_up: Annotated[str | None, Parameter(metavar="TIME")] = None
    settle: Annotated[str | None, Parameter(metavar="TIME")] = None
    metric: Annotated[
        tuple[str, ...], Parameter(metavar="PATTERN", consume_multiple=False, negative=())
    ] = ()
    ready_timeout: Annotated[str | None, Parameter(metavar="TIME")] = None
    stop_signal: Literal["TERM", "INT", "QUIT", "HUP", "KILL"] = "TERM"


def server_and_load(
    options: ServiceOptions, command: Sequence[str], *, is_seen_serving: bool
) -> tuple[tuple[str, ...], ServiceSpec | None]:
    """Return the command line to run, and the load if it is a server.

    Raises PagecageError for a server beside a command, without a load, or without a sign that it
    serves, and for an option that is wrong.
    """
    if options.serve is None:
        if given := [name for name, value in vars(options).items() if _is_given(name, value)]:
            message = f"--{given[0].replace('_', '-')} applies only to a server"
            raise PagecageError(message, "--serve 'SERVER COMMAND'")
        return tuple(command), None
    if command:
        message = f"there is a server and a command {shlex.join(command)!r}"
        raise PagecageError(message, "give --serve or a COMMAND")
    if options.load is None:
        raise PagecageError("--serve needs the load to measure", "--load 'LOAD COMMAND'")
    if not is_seen_serving:
        message = "--serve needs a sign that the server serves"
        raise PagecageError(message, "--ready-port PORT or --ready-when REGEX")
    return _split(options.serve, "--serve"), _service(options, options.load)


def refuse_service(options: ServiceOptions) -> None:
    """Raise PagecageError for any option of a server, beside an image."""
    if given := [name for name, value in vars(options).items() if _is_given(name, value)]:
        message = f"--{given[0].replace('_', '-')} and --image are mutually exclusive"
        raise PagecageError(message, "measure until the image serves: --ready-port PORT")


def _service(options: ServiceOptions, load: str) -> ServiceSpec:
    patience = options.ready_timeout
    return ServiceSpec(
        _split(load, "--load"),
        _metrics(options.metric),
        _seconds(options.warm_up, "--warm-up"),
        _seconds(options.settle, "--settle"),
        None if patience is None else parse_seconds(patience, "--ready-timeout"),
        options.stop_signal,
    )


def parse_metric(text: str) -> tuple[str, MetricPattern]:
    """Return the name and the pattern of `--metric`. Raises PagecageError for any other text.

    A regular expression is never cut: what names it remains part of it.
    """
    path = _PATH.fullmatch(text)
    pattern = path["path"] if path else text
    if reason := wrong_pattern(pattern):
        raise PagecageError(f"--metric: {reason}", "--metric 'tps = ([0-9.]+)'")
    name = path["name"] or _last_key(pattern) if path else _name_of(text)
    if not name:
        raise PagecageError(
            f"--metric: {text!r} has no name", "name its group, as in 'took (?P<p99_ms>[0-9.]+)'"
        )
    if reason := wrong_metric_name(name):
        raise PagecageError(f"--metric: {reason}", "name its group: (?P<name>...)")
    return name, MetricPattern(pattern)


def _name_of(pattern: str) -> str:
    """Return the name of the group, or else the words before the first `=` or `:`."""
    if named := _NAMED.search(pattern):
        return named["name"]
    words = _WORDS.match(pattern)
    return re.sub(r"\W+", "_", words["name"]).strip("_").lower() if words else ""


def _last_key(path: str) -> str:
    words: list[str] = re.findall(r"\w+", path)
    return words[-1].lower() if words else ""


def _metrics(texts: Sequence[str]) -> dict[str, MetricPattern]:
    metrics: dict[str, MetricPattern] = {}
    for text in texts:
        name, pattern = parse_metric(text)
        if name in metrics:
            raise PagecageError(
                f"--metric: two metrics are named {name}", "name a group: (?P<name>...)"
            )
        metrics[name] = pattern
    return metrics


def _is_given(name: str, value: object) -> bool:
    return bool(value != getattr(ServiceOptions(), name))


def _seconds(text: str | None, option: str) -> float:
    return 0.0 if text is None else parse_seconds(text, option)


def _split(text: str, option: str) -> tuple[str, ...]:
    """Return the words of a command line, as a shell would split it."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise PagecageError(
            f"{option}: {text!r} cannot be split into words: {str(error).lower()}",
            "close each quotation mark",
        ) from None
    if not words or "\0" in text:
        raise PagecageError(f"{option}: {text!r} is not a command", f"{option} 'PROGRAM ARGUMENTS'")
    return words
