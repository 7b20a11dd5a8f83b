"""The table [data] of a definition, and the data of its trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent.preview import trial_commands
from pagecage.model.trial import TrialData, trial_from_json, trial_to_json
from pagecage.planning.plan import PlanOptions, make_trials
from pagecage.runner.resource_needs import needed_disk_bytes
from tests.builders.definitions import definitions, refusal, top
from tests.builders.plans import CAGES

__all__ = ["top"]  # a fixture

OWN = """
question = "?"
[workload]
program = "search"
kind = "command"
arguments = ["--in", "{data}"]
data_paths = ["{data}"]
[data]
prepare = ["index", "{data}", "--rows", "{rows}"]
made_by = ["/usr/lib/index/*/bin/index"]
writes = true
seed = 3
timeout_seconds = 60
[factors]
cage = ["uncaged", "tight"]
[sizes]
full = { places = { rows = 9 }, prepared = "1GiB" }
default = { places = { rows = 5 }, prepared = "1MiB" }
emulated = { places = { rows = 5 } }
smoke = { places = { rows = 5 } }
"""


def test_data_are_resolved_for_each_size(top: Path) -> None:
    (top / "experiments/own.toml").write_text(OWN)
    experiment = definitions(top).experiment("own")
    trials = {
        size: make_trials(experiment, CAGES, PlanOptions(size, "asked for", 2, 7, "vm", "never"))
        for size in ("full", "smoke")
    }
    words = ("index", "{data}", "--rows", "9")
    made_by = ("/usr/lib/index/*/bin/index",)
    assert trials["full"][0].data == TrialData(words, made_by, 3, True, 60.0, 2**30)
    assert [needed_disk_bytes(trials[size]) for size in ("full", "smoke")] == [2**31, 0]
    for trial in (*trials["full"], *trials["smoke"]):
        assert trial_from_json(trial_to_json(trial)) == trial


def test_a_plan_shows_once_how_the_data_are_made(top: Path) -> None:
    (top / "experiments/own.toml").write_text(OWN.replace('"{rows}"', '"{rows}", "{seed}"'))
    options = PlanOptions("smoke", "asked for", 1, 7, "vm", "never")
    first, second = make_trials(definitions(top).experiment("own"), CAGES, options)
    shown = list(trial_commands(first, False))
    assert shown[0] == "index DIR/prepared/KEY/data --rows 5 3"
    assert any(line.endswith("search --in DIR/prepared/KEY/data") for line in shown[1:])
    assert not any(line.startswith("index") for line in trial_commands(second, False))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"index", "{data}"', '"index", "here"'), "prepare does not contain {data}"),
        (('prepare = ["index", "{data}", "--rows", "{rows}"]', "prepare = []"), "data.prepare"),
        (('kind = "command"', ""), "applies only to kind"),
        (("[data]", "[dato]"), "unknown key 'dato'"),
        (("writes = true", "write = true"), "unknown key 'data.write'"),
        (("places = { rows = 5 }, prep", "prep"), "sizes.default has no value for {rows}"),
        (("seed = 3", 'seed = "3"'), "data.seed"),
        (("rows = 9", "rows = 9, data = 1"), "places.data has the name of a placeholder"),
    ],
)
def test_what_is_wrong_is_named(top: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in OWN
    assert says in refusal(top, OWN.replace(*change)).message


def test_a_workload_with_the_handshake_may_use_prepared_data(top: Path) -> None:
    text = OWN.replace('kind = "command"', "").replace('data_paths = ["{data}"]', "")
    (top / "experiments/own.toml").write_text(text.replace('"search"', '"pcread"'))
    assert definitions(top).experiment("own").arguments == ("--in", "{data}")


def test_fio_has_no_prepared_data(top: Path) -> None:
    text = OWN.replace('"command"', '"fio"').replace('data_paths = ["{data}"]', "")
    text = text.replace('"search"', '"fio"').replace('"--in", "{data}"', "")
    assert 'a workload of kind "fio" cannot use' in refusal(top, text).message


def test_data_without_a_table_are_refused(top: Path) -> None:
    head, rest = OWN.split("[data]")
    text = head + "[factors]" + rest.split("[factors]")[1]
    assert "{data} is used, but there is no table [data]" in refusal(top, text).message
