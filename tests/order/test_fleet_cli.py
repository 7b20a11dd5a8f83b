"""`pagecage run NAME --host GROUP` from its words to its report, over hosts that are folders here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.cli import fleet, report
from pagecage.cli.form import Form
from pagecage.cli.run_options import FleetWishes, Wishes
from pagecage.errors import EXIT_INCOMPLETE, EXIT_OK, HostError, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.process import Completed
from tests.fake_host.rack import FIT, Rack

SMOKE = Wishes(host="rack", size="smoke")
GO_ON = Wishes(host="rack")
WAYS = FleetWishes()
START, AGAIN = fleet.Again(resume=False, yes=False), fleet.Again(resume=True, yes=False)


@pytest.fixture
def said(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said on standard error, once the group `rack` means our hosts."""
    monkeypatch.setattr(fleet, "hosts_of", lambda _: rack.hosts())
    monkeypatch.setattr(fleet, "make_stage", lambda *_: rack.stage())
    monkeypatch.setattr(fleet, "make_kit", lambda _: rack.kit())
    monkeypatch.setattr(fleet, "RUNS", rack.top / "runs")
    # What a scripted agent tells cannot be judged: reports are tested over records that can.
    monkeypatch.setattr(report, "analyse", reported)
    return []


def reported(verb: str, folder: Path, *options: str) -> Completed:
    """What `analysis render --show` would print."""
    assert (verb, *options) == ("render", "--show")
    return Completed((), 0, f"the report of {folder.name}", "")


def go(said: list[str], again: fleet.Again = START, wishes: Wishes = SMOKE, ways: FleetWishes = WAYS) -> int:
    return fleet.run("smoke", wishes, ways, "pagecage run smoke --host rack", again, Form(), said.append)


def refusal(call: Callable[[], object]) -> PagecageError:
    with pytest.raises(PagecageError) as caught:
        call()
    return caught.value


def test_a_run_ends_with_one_report_over_all_hosts(rack: Rack, said: list[str], capsys: pytest.CaptureFixture) -> None:
    assert go(said) == EXIT_OK
    out, err = capsys.readouterr()
    assert out.startswith("the report of ")
    assert out.endswith("-smoke-rack")
    assert "right   4/4" in err
    assert said[1].startswith("8 trials to run on 2 hosts")
    assert find_fleet(rack.top / "runs", "smoke@rack") is not None
    assert said[-1].endswith("/report.html")


def test_a_lost_host_is_told_with_its_reason_and_resume_asks_for_it_alone(rack: Rack, said: list[str]) -> None:
    (rack.top / "units/lost").write_text("-right-")
    assert go(said) == EXIT_INCOMPLETE
    assert any("right: 4 trials have no answer (lost: " in line for line in said)
    assert "  mend: pagecage run smoke --host rack --resume" in said
    (rack.top / "units/lost").unlink()
    assert go(said, AGAIN, GO_ON) == EXIT_OK
    assert len(rack.agent_calls("left")) == len(rack.agent_calls("right")) == 1
    assert go(said, AGAIN, GO_ON) == EXIT_OK, "nothing is lacking any more"


def test_a_dry_run_shows_hosts_and_counts_and_starts_nothing(
    rack: Rack, said: list[str], capsys: pytest.CaptureFixture
) -> None:
    spread = FleetWishes(fleet="spread")
    fleet.show_plan("smoke", replace(SMOKE, repeats=3), spread, "", False, said.append)
    told = capsys.readouterr().out
    assert "left     8 trials, 2 repeats" in told
    assert "right    4 trials, 1 repeats" in told
    fleet.show_plan("smoke", SMOKE, WAYS, "", True, said.append)
    assert list(json.loads(capsys.readouterr().out)) == ["left", "right"]
    assert rack.agent_calls("left") == []
    assert not (rack.top / "runs").exists()


def test_bad_wishes_are_refused_before_anything_starts(rack: Rack, said: list[str], tmp_path: Path) -> None:
    assert "--until-ci" in refusal(lambda: go(said, wishes=replace(SMOKE, until_ci="5%"))).message
    assert "--data-dir" in refusal(lambda: go(said, wishes=replace(SMOKE, data_dir=tmp_path))).message
    assert "saved machine state" in refusal(lambda: go(said, wishes=replace(SMOKE, fresh="block"))).message
    rack.is_like("right", **{**FIT, "kernel": "6.1"})
    unlike = refusal(lambda: go(said, wishes=replace(SMOKE, repeats=2), ways=FleetWishes(fleet="spread")))
    assert "not alike: kernel is 6.12 on left, 6.1 on right" in unlike.message
    rack.is_like("right", **{**FIT, "disk": {"mount_point": "/"}})
    assert "the disk that holds / would be changed on right" in refusal(lambda: go(said)).message
    assert "--repeats does not go with --resume" in refusal(lambda: go(said, AGAIN, replace(GO_ON, repeats=2))).message
    assert "there is no run of smoke on rack" in refusal(lambda: go(said, AGAIN, GO_ON)).message
    assert not (rack.top / "runs").exists()


def test_a_host_that_does_not_answer_stops_all_unless_it_is_left_out(rack: Rack, said: list[str]) -> None:
    inventory = json.loads((rack.top / "inventory.json").read_text())
    inventory["all"]["hosts"]["right"] |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    (rack.top / "inventory.json").write_text(json.dumps(inventory))
    gone = refusal(lambda: go(said))
    assert isinstance(gone, HostError)
    assert gone.hint == "bring right back, or leave such hosts out: --skip-unreachable"
    assert not (rack.top / "runs").exists()
    assert go(said, ways=FleetWishes(skip_unreachable=True)) == EXIT_OK
    assert any(line.startswith("left out: right: ") for line in said)
    folder = find_fleet(rack.top / "runs", "smoke@rack")
    assert folder is not None
    assert "Connection refused" in folder.document()["left_out"]["right"]


def test_an_unknown_group_is_told_what_is_known() -> None:
    assert refusal(lambda: fleet.hosts_of("vn")).hint == 'did you mean "vm"?'
    told = refusal(lambda: fleet.hosts_of("gests"))
    assert (told.message, told.hint[:29]) == (
        "there is no host 'gests', and no inventory has a group 'gests'", "auto, local, vm, or a group: ",
    )  # fmt: skip
    assert "guests" in told.hint
