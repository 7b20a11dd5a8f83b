"""A definition's own programs and collectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.experiment import Experiment
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.planning.plan import PlanOptions, make_plan
from tests.builders.definitions import definitions, refusal
from tests.builders.plans import CAGES, HARNESS
from tests.tree import ROOT

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


def test_a_handshake_may_be_started_by_a_program_of_the_definition(own: Path) -> None:
    text = OWN.replace('kind = "command"\n', "").replace('"{programs}/serve"', '"/usr/bin/env"')
    (own / "experiments/own.toml").write_text(text)
    experiment = definitions(own).experiment("own")
    assert experiment.workload.kind == "handshake"
    assert list(experiment.own_programs) == ["load.py"]


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


DEFINITION = """question = "q"
sections = ["mine.py"]
[collectors]
iostat = true
[collectors.queue]
command = ["./sample.sh", "--every", "0.1"]
required = true
period_seconds = 0.1
[bpftrace]
scripts = ["./vfs-reads.bt"]
[workload]
kind = "command"
program = "true"
[factors]
cage = ["uncaged"]
[sizes.full]
[sizes.default]
[sizes.emulated]
[sizes.smoke]
"""
FILES = {"sample.sh": "#!/bin/sh\n", "vfs-reads.bt": "BEGIN { }\n", "mine.py": "# %%\nrun\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    (made / "experiments").mkdir(parents=True)
    (made / "cgroups").mkdir()
    for name, text in FILES.items():
        (made / "experiments" / name).write_text(text)
    return made


def read(project: Path, text: str = DEFINITION) -> Experiment:
    (project / "experiments/mine.toml").write_text(text)
    return Definitions(ROOT, [], project).experiment("mine")


def test_files_beside_the_definition_are_carried(project: Path) -> None:
    found = read(project)
    assert found.collectors == ("iostat",)
    queue, script = found.own_collectors
    assert queue.command == ("{programs}/sample.sh", "--every", "0.1")
    assert (queue.required, queue.period_seconds, queue.is_script) == (True, 0.1, False)
    assert (script.name, script.command) == ("vfs_reads", ("{programs}/vfs-reads.bt",))
    assert (script.is_script, script.period_seconds) == (True, 0.0)
    assert found.own_programs == {name: FILES[name] for name in ("sample.sh", "vfs-reads.bt")}
    assert found.sections == {"mine.py": FILES["mine.py"]}
    assert found.file == project / "experiments/mine.toml"


@pytest.mark.parametrize("name", list(FILES))
def test_a_change_of_a_file_changes_the_hash(project: Path, name: str) -> None:
    before = read(project).definition_sha256
    (project / "experiments" / name).write_text("# changed\n")
    assert read(project).definition_sha256 != before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"./sample.sh"', '"./simple.sh"'), 'did you mean "sample.sh"?'),
        (('"./sample.sh"', '"../../sample.sh"'), "is outside of"),
        (("[collectors.queue]", "[collectors.Queue-1]"), "is not the name of a collector"),
        (("[collectors.queue]", "[collectors.vmtouch]"), "is a collector of pagecage itself"),
        (("iostat = true", "iotop = true"), "collectors.iotop: pagecage has no such collector"),
        (("iostat = true", "iostat = false"), "collectors.iostat: Input should be True"),
        (("period_seconds = 0.1", "period = 1"), "unknown key 'collectors.queue.period'"),
        (("period_seconds = 0.1", "period_seconds = -1"), "collectors.queue.period_seconds"),
        (('["./sample.sh", "--every", "0.1"]', "[]"), "collectors.queue.command"),
        (('"./vfs-reads.bt"', '"vfs-reads.bt"'), "does not begin with ./"),
        (('"./vfs-reads.bt"', '"./queue.bt"'), "two are named 'queue'"),
        (('"./vfs-reads.bt"', '"./queue_x.bt"'), "responses of 'queue_x' could be those of"),
        (('["mine.py"]', '["../mine.py"]'), "is not the name of a Python file beside it"),
        (('["mine.py"]', '["yours.py"]'), "there is no program 'yours.py'"),
    ],
)
def test_a_mistake_is_one_sentence(project: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in DEFINITION
    for name in ("queue.bt", "queue_x.bt"):
        (project / "experiments" / name).write_text("BEGIN { }\n")
    with pytest.raises(PagecageError) as refused:
        read(project, DEFINITION.replace(*change))
    assert says in str(refused.value)
    assert "tag-" not in str(refused.value)


def test_a_link_to_a_file_elsewhere_is_refused(project: Path) -> None:
    (project.parent / "secret").write_text("x")
    for name in ("mine.py", "sample.sh"):
        file = project / "experiments" / name
        file.unlink()
        file.symlink_to(project.parent / "secret")
        with pytest.raises(PagecageError, match="is outside of"):
            read(project)
        file.unlink()
        file.write_text(FILES[name])


def test_two_files_of_one_name_are_refused(project: Path) -> None:
    (project / "experiments/programs").mkdir()
    (project / "experiments/programs/sample.sh").write_text("x")
    text = DEFINITION.replace('program = "true"', 'program = "{programs}/sample.sh"')
    with pytest.raises(PagecageError, match="two of its files are named"):
        read(project, text)
