"""A definition's own programs: found by name, kept in the plan, part of the definition's hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.planning.plan import PlanOptions, make_plan
from tests.builders.definitions import definitions, refusal, top
from tests.builders.plans import CAGES, HARNESS

__all__ = ["top"]  # a fixture

OWN = """
question = "?"
[workload]
program = "{programs}/serve"
kind = "command"
arguments = ["--with", "{programs}/load.py"]
[factors]
cage = ["uncaged"]
[sizes]
full = {}
default = {}
emulated = {}
smoke = {}
"""
TEXTS = {"load.py": "print(1)\n", "serve": "#!/bin/sh\necho ä\n"}


@pytest.fixture
def own(top: Path) -> Path:
    """Return a checkout with a definition that names two programs of three."""
    folder = top / "experiments/programs"
    folder.mkdir()
    for name, text in {**TEXTS, "other": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text)
    (top / "experiments/own.toml").write_text(OWN)
    return top


def test_named_programs_are_part_of_the_plan(own: Path) -> None:
    experiment = definitions(own).experiment("own")
    assert experiment.own_programs == TEXTS
    options = PlanOptions("smoke", "asked for", 1, 7, "vm", "never")
    plan = make_plan("run", experiment, CAGES, options, "pagecage run own", HARNESS)
    assert plan.document["own_programs"] == TEXTS


def test_a_changed_program_is_a_changed_definition(own: Path) -> None:
    before = definitions(own).experiment("own").definition_sha256
    (own / "experiments/programs/other").write_text("#!/bin/sh\nexit 1\n")
    assert definitions(own).experiment("own").definition_sha256 == before
    (own / "experiments/programs/serve").write_text("#!/bin/sh\nexit 1\n")
    assert definitions(own).experiment("own").definition_sha256 != before


def test_a_missing_program_is_named_with_the_nearest(own: Path) -> None:
    error = refusal(own, OWN.replace("/serve", "/server"))
    assert "no program 'server'" in error.message
    assert error.hint == 'did you mean "serve"?'


@pytest.mark.parametrize(
    ("content", "says"), [(b"\xff\xfe\0", "is not text"), (b"x" * (2**20 + 1), "at most 1 MiB")]
)
def test_only_short_texts_are_programs(own: Path, content: bytes, says: str) -> None:
    (own / "experiments/programs/serve").write_bytes(content)
    assert says in refusal(own, OWN).message


def test_a_path_beside_the_folder_is_no_program(own: Path) -> None:
    assert "no program '..'" in refusal(own, OWN.replace("/serve", "/../own.toml")).message


def test_places_do_not_take_its_name(own: Path) -> None:
    text = OWN.replace("smoke = {}", "smoke = { places = { programs = 1 } }")
    assert "places.programs has the name of a placeholder" in refusal(own, text).message
