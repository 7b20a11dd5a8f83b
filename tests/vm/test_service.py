"""A server in a cage under a load of its own in the guest: an IOPS cap is the rate of answers."""

from __future__ import annotations

import pytest

from pagecage.model.record import Record
from pagecage.units import MIB
from tests.builders import page_service
from tests.builders.command_line import CommandLine, verdicts

pytestmark = [pytest.mark.vm, pytest.mark.slow]
_OWN_IOPS = 500  # cgroups/customer-tenth.toml
_IOPS = (20, 40)
"""Caps that emulated CPUs can drive a server in Python to, beside other work on the machine."""
_SECONDS, _CONNECTIONS = 10, 4


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A sweep of the cap on the IOPS of one server."""
    made = CommandLine(tmp_path_factory.mktemp("swept"), "replay-python3")
    server, load, data = page_service.write(tmp_path_factory.mktemp("service"), 64 * MIB)
    copies = [word for path in (server, load, data) for word in ("--copy", path)]
    made.succeed(
        *("sweep", "customer-tenth", "--vary", f"IOReadIOPSMax={','.join(map(str, _IOPS))}"),
        *("--host", "vm", *copies, "--cold", data),
        *("--serve", f"python3 {server} {data} 7000", "--ready-port", "7000"),
        *("--load", f"python3 {load} 7000 {_SECONDS} {_CONNECTIONS}"),
        *("--warm-up", "3s", "--settle", "1s"),
        *("--metric", "tps = ([0-9.]+)", "--metric", "average_ms=$.latency.average_ms"),
    )
    return made


def by_iops(made: CommandLine) -> dict[int, Record]:
    return {(record.cage.requested or {})["IOReadIOPSMax"]: record for record in made.records()}


def test_each_answer_takes_one_io_of_the_cap(swept: CommandLine) -> None:
    records = by_iops(swept)
    assert set(records) == {*_IOPS, _OWN_IOPS}
    for iops in _IOPS:
        response = records[iops].response
        assert response["tps"] == pytest.approx(iops, rel=0.05), records[iops].error
        assert response["average_ms"] == pytest.approx(1000 * _CONNECTIONS / iops, rel=0.1)
        assert response["wall_seconds"] == pytest.approx(_SECONDS, abs=6)


def test_the_window_has_the_load_alone(swept: CommandLine) -> None:
    """The counters begin after the warm-up, and the load's CPU time is not the server's."""
    for iops in _IOPS:
        record = by_iops(swept)[iops]
        answers = (record.response["tps"] or 0) * _SECONDS
        assert record.response["device_reads"] == pytest.approx(answers, rel=0.1)
        assert record.load.warm_up == {"seconds": 3.0, "runs": 1}
        assert (record.load.cpu_seconds or 0) > 0
        assert record.load.cpus
        assert record.load.cpu_note is None
        assert not set(record.load.cpus) & set(record.load.server_cpus or ())


def test_the_cap_is_named_and_the_load_is_not_noise(swept: CommandLine) -> None:
    for iops in _IOPS:
        record = by_iops(swept)[iops]
        judged = verdicts(swept, record)
        assert judged.binding_limit.verdict == "iops", judged.binding_limit
        assert judged.cache_state_reached.verdict == "reached"
        assert all("on the outer host" in reason for reason in judged.reasons)


def test_the_report_speaks_of_the_metrics(swept: CommandLine) -> None:
    page = (swept.folder() / "report.html").read_text()
    assert "serve the load" in page
    assert "Figures of the load" in page
    assert "average ms" in page
