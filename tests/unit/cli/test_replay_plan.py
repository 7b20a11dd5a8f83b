"""The service of a replay: its server, its load and its metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.planning.options import ReplayOptions, ServiceOptions
from pagecage.planning.replay_plan import parse_metric, server_and_load

SERVER = ServiceOptions(serve="sh -c 'serve it'", load="drive 'x y'")
SERVING = ReplayOptions(ready_port=80)


@pytest.mark.parametrize(
    ("text", "name", "pattern"),
    [
        ("tps = ([0-9.]+)", "tps", "tps = ([0-9.]+)"),
        ("tps=([0-9.]+)", "tps", "tps=([0-9.]+)"),
        ("^tps: ([0-9.]+)", "tps", "^tps: ([0-9.]+)"),
        ("Requests/sec: +([0-9.]+)", "requests_sec", "Requests/sec: +([0-9.]+)"),
        (
            "latency average = (?P<latency_ms>[0-9.]+) ms",
            "latency_ms",
            "latency average = (?P<latency_ms>[0-9.]+) ms",
        ),
        ("$.latency.p99", "p99", "$.latency.p99"),
        ("p99_ms=$.latency.p99", "p99_ms", "$.latency.p99"),
        ('first=$["a b"][0]', "first", '$["a b"][0]'),
    ],
)
def test_what_names_a_metric(text: str, name: str, pattern: str) -> None:
    """A regular expression is never cut, since the rest could match another number."""
    assert parse_metric(text) == (name, MetricPattern(pattern))


@given(st.text())
def test_any_text_is_a_metric_or_is_refused(text: str) -> None:
    try:
        name, pattern = parse_metric(text)
    except PagecageError as error:
        assert error.message.startswith("--metric: ")  # noqa: PT017 - both ends are right
    else:
        assert pattern.pattern in text
        assert name


def test_a_server_and_its_load() -> None:
    options = replace(
        SERVER, warm_up=60.0, settle=0.5, ready_timeout=30.0, metric=("a=(.)", "b=(.)")
    )
    argv, service = server_and_load(options, (), SERVING)
    assert argv == ("sh", "-c", "serve it")
    metrics = {"a": MetricPattern("a=(.)"), "b": MetricPattern("b=(.)")}
    assert service == ServiceSpec(("drive", "x y"), metrics, 60.0, 0.5, 30.0)


def test_a_command_stays_as_it_is() -> None:
    assert server_and_load(ServiceOptions(), ("a",), ReplayOptions()) == (("a",), None)


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        (ServiceOptions(load="x"), "--load applies only to a server", "--serve"),
        (ServiceOptions(stop_signal="INT"), "--stop-signal applies only to a server", "--serve"),
        (ServiceOptions(warm_up=1.0), "--warm-up applies only to a server", "--serve"),
        (ServiceOptions(serve="x"), "--serve needs the load", "--load"),
        (ServiceOptions(serve="'x", load="y"), "no closing quotation", "close each"),
        (ServiceOptions(serve="x", load=" "), "--load: ' ' is not a command", "--load"),
        (replace(SERVER, metric=("([0-9]+)",)), "has no name", "(?P<p99_ms>"),
        (replace(SERVER, metric=("tps = [0-9]+",)), "has no groups", "tps = ("),
        (replace(SERVER, metric=("a=(.)", "a: (.)")), "two metrics are named a", "(?P<name>"),
        (replace(SERVER, metric=("start_seconds=(.)",)), "is a response of every trial", "(?P<"),
        (replace(SERVER, metric=("wall_seconds=(.)",)), "is a response of every trial", "(?P<"),
    ],
)
def test_what_is_refused(options: ServiceOptions, says: str, hint: str) -> None:
    with pytest.raises(PagecageError) as caught:
        server_and_load(options, (), SERVING)
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_a_server_that_cannot_be_seen_serving_is_refused() -> None:
    with pytest.raises(PagecageError, match="needs a sign that the server serves"):
        server_and_load(SERVER, (), ReplayOptions())


def test_a_server_and_a_command_are_refused() -> None:
    with pytest.raises(PagecageError, match="a server and a command 'a b'"):
        server_and_load(SERVER, ("a", "b"), SERVING)
