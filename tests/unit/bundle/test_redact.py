"""Redaction: what is not known to be harmless does not leave the machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.bundle.pack import pack
from pagecage.bundle.redact import KINDS, Redactor, names_in, vocabulary
from pagecage.bundle.unpack import unpack
from pagecage.cli.export import Kind, export
from pagecage.model.json_codec import from_json, to_json
from pagecage.model.trial import ImageSpec, Variable
from tests.builders.command_line import called
from tests.builders.run_edits import edit
from tests.fixtures.bundles import contents
from tests.fixtures.runs import DEFINITION, build_run
from tests.fixtures.small_runs import FOLDER

NONE: dict[str, set[str]] = {"hosts": set(), "users": set()}
LEAKS = {
    "a value with a quotation mark": (
        "pagecage replay c --image x --env 'PW=it'\"'\"'s-secret-tail' -- run",
        ("secret-tail", "it's", "PW=it"),
    ),
    "a name with a dot": ("pagecage replay c -e API.KEY=hunter2 --env=TOKEN=h3", ("hunter", "h3")),
    "a password in a URL": (
        "curl https://bob:pw-9@db.example.com:8443/x?key=abc done",
        ("bob", "pw-9", "example", "8443", "abc"),
    ),
    "names of the network": (
        "connecting to web-a.prod.acme.io, api.internal and carol@mail.acme.io",
        ("web-a", "acme", "api.internal", "carol"),
    ),
    "a path with a name": ("reading /mnt/web01_data/x and ./zorblatt/y", ("web01", "zorblatt")),
    "a name in capitals": ("the host WEB01 and DB-17 answered", ("WEB01", "DB-17")),
    "an assignment": ("PASSWORD=hunter2 and db_password=hunter3 TOKEN=h4x", ("hunter", "h4x")),
    "addresses": ("10.1.2.3:5432, fe80::1234 and 52:54:00:ab:cd:ef", ("10.1", "1234", "ab:cd")),
    "identifiers": (
        "7c9e6679-7425-40de-944b-e07fc1f90ae7 b08dfa6083e7567a1921a715000001fb",
        ("7c9e", "b08d"),
    ),
    "a machine's kernel parameters": (
        "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=7c9e6679 crypt=acme quiet mitigations=off",
        ("7c9e", "acme"),
    ),
}


def redactor(*, is_replay: bool = False, **options: Any) -> Redactor:
    return Redactor({}, is_replay=is_replay, **options)


@pytest.mark.parametrize("case", LEAKS)
@pytest.mark.parametrize("key", ["command", "error", "note"])
def test_what_leaked_once(case: str, key: str) -> None:
    text, secrets = LEAKS[case]
    for value in (text, json.dumps({"text": text})):
        told = redactor(is_replay=True).value({key: value})[key]
        assert not [secret for secret in secrets if secret.lower() in told.lower()], told


def test_a_run_that_has_all_of_it(tmp_path: Path) -> None:
    """In the plan, the facts, the records and a trace, and in every file of the bundle."""
    run = build_run(tmp_path / "run", command=LEAKS["a name with a dot"][0])
    every = " ; ".join(text for text, _ in LEAKS.values())
    tail = {"stderr_tail": [text for text, _ in LEAKS.values()]}
    edit(
        run / "records.jsonl",
        lambda record: record.update(error=every, exit={**record["exit"], **tail}),
    )
    command_line = LEAKS["a machine's kernel parameters"][0]
    [facts] = (run / "facts").iterdir()
    facts.write_text(json.dumps({"kernel_command_line": command_line, "hostname": "web01"}))
    (next((run / "trials").iterdir()) / "load.txt").write_text(every)
    pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    found = [secret for _, secrets in LEAKS.values() for secret in secrets if len(secret) > 4]
    for secret in found:
        for name, data in files.items():
            assert secret.lower().encode() not in data.lower(), (secret, name)
    told = next(json.loads(data) for name, data in files.items() if name.startswith("facts/"))
    assert told["kernel_command_line"] == "quiet mitigations=off"


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789._-/@:=", min_size=1, max_size=30))
def test_what_stays_is_made_of_known_words_and_numbers(word: str) -> None:
    told = redactor().text(f"said {word}")
    letters = re.findall(r"[a-z]{4,}", told)
    known = vocabulary() | {"user", "word", "host", "value"}
    joined = set(re.findall(r"[a-z0-9._-]+", told))
    assert all(
        part in known or any(part in whole and whole in known for whole in joined)
        for part in letters
    ), told


@given(st.text(max_size=60))
def test_a_redacted_text_stays_as_it_is(text: str) -> None:
    once = redactor().text(text)
    assert redactor().text(once) == once


@pytest.mark.parametrize("name", ["random", "tenth", "vm", "root"])
def test_a_host_called_like_a_level_does_not_take_the_experiment_apart(name: str) -> None:
    plan = {"host": "vm", "definition": DEFINITION, "experiment": "constrained-random"}
    data = {"hostname": name, "treatment": {"pattern": "random"}, "user": "root vm"}
    names = names_in([json.dumps(data)], plan, {"hosts": set(), "users": {name}})
    told = Redactor(names, is_replay=False).value(data)
    assert told == {**data, "hostname": "host-1"}


def test_the_same_thing_gets_the_same_name_everywhere() -> None:
    made = Redactor({"big-box": "hosts", "carol": "users"}, is_replay=False)
    texts = ("big-box 10.1.1.1", "10.1.1.2", "10.1.1.1 big-box carol@big-box")
    told = [made.text(text) for text in texts]
    assert told == ["host-1 192.0.2.1", "192.0.2.2", "192.0.2.1 host-1 user@host-1"]


def test_values_of_a_containers_variables_are_redacted() -> None:
    """Plans of older versions have them in their trials."""
    variables = (Variable("PASSWORD", 'deep "secret"'), Variable("EMPTY", ""))
    image = ImageSpec("own:1", "sha256:0", "amd64", 1, environment=variables)
    plan = redactor(is_replay=True).value({"image": to_json(image)})
    told = from_json(ImageSpec, plan["image"])
    assert told is not None
    assert [one.variable_value for one in told.environment] == ["value-1", ""]
    assert told.environment[0].name == "PASSWORD"


def test_a_replayed_command_keeps_its_program_options_and_numbers() -> None:
    typed = "pagecage replay customer --host vm -- grep -r -m 5 needle data"
    told = redactor(is_replay=True).value({"command": typed})["command"]
    assert told == "pagecage replay customer --host vm -- grep -r -m 5 argument-1 argument-2"


@pytest.mark.parametrize(
    "text",
    [
        "/sys/fs/cgroup/pagecage.slice/pagecage-r1_uncaged_sequential.1.slice",
        "IOReadIOPSMax=500 MemoryMax=67108864 io.max rbps=20000000",
        "6.12.41+deb13-cloud-amd64, 257.13-1, 127.0.0.1, ::1 and 11:46:14",
        "trials/r1_uncaged_random.1/sampler.jsonl",
        "the disk reached only 84% of the cap",
        "about 2 min 03 s at 128 MiB; SIZE=full is 10 GiB as published",
        "HISTFAAAADB42pNpmSzMwMBgyQABTFCaEUoz/TQ==",
    ],
)
def test_what_a_reader_needs_stays(text: str) -> None:
    assert redactor().text(text) == text


@pytest.mark.parametrize("name", ["smoke", "append-log", "postgres-gp3", "lucene-search"])
def test_a_stored_run_has_the_same_tables_after_it_was_redacted_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, again = FOLDER / f"{name}.pagecage.zip", tmp_path / "again.zip"
    assert export(str(given), out=again) == 0
    shown = []
    for archive in (given, again):
        folder = tmp_path / archive.stem
        unpack(archive, folder)
        capsys.readouterr()
        assert called(["show", str(folder), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


def test_a_variable_of_the_makefile_does_not_keep_a_private_word() -> None:
    assert "acme" not in Redactor({}, is_replay=False).text("HOST=acme-web SIZE=full")


def test_a_kind_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run(tmp_path / "20261121T100000Z-constrained-random-vm")
    shutil.copy(run / "plan.json", tmp_path)
    [facts] = (run / "facts").iterdir()
    facts.write_text(json.dumps({"hostname": "web01", "kernel_command_line": "crypt=acme quiet"}))
    assert export(str(run), out=tmp_path / "all.zip") == 0
    assert "replaced kernel (parameters of the kernel's command line)" in capsys.readouterr().err
    assert export(str(run), out=tmp_path / "kept.zip", keep=("kernel", "hosts")) == 0
    assert "kept kernel: in 2 places" in capsys.readouterr().err
    files = contents(tmp_path / "kept.zip")
    told = next(json.loads(data) for name, data in files.items() if name.startswith("facts/"))
    assert told == {"hostname": "web01", "kernel_command_line": "crypt=acme quiet"}


def test_every_kind_can_be_named() -> None:
    assert set(get_args(Kind)) == KINDS.keys()
