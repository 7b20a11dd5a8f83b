"""Services of Compose files as containers, and what a replay of them leaves out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.importers.compose import (
    ComposeService,
    ServiceVolume,
    compose_variables,
    read_service,
)
from pagecage.importers.document import read_document

PLAIN = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8)


def service(**keys: Any) -> ComposeService:
    web, db = {"image": "own:1", **keys}, {"image": "postgres:16"}
    tree = {"services": {"web": web, "db": db}}
    document = read_document(yaml.safe_dump(tree, sort_keys=False), "c.yaml")
    return read_service(document, "web", "c.yaml")


def test_an_image_alone() -> None:
    assert service() == ComposeService("own:1", (), None, (), (), (), (), None, None, ())


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("serve --dir '/a b'", ("serve", "--dir", "/a b")),
        (["serve", "--dir", "/a b", 3], ("serve", "--dir", "/a b", "3")),
        ("echo $$HOME", ("echo", "$HOME")),
        (None, ()),
    ],
)
def test_a_command_is_a_line_or_a_list(written: object, words: tuple[str, ...]) -> None:
    assert service(command=written).command == words
    assert service(entrypoint=written).entrypoint == (None if written is None else words)


@pytest.mark.parametrize(
    ("written", "variables"),
    [
        ({"A": "b", "N": 3, "T": True, "HERE": None}, ("A=b", "N=3", "T=true", "HERE")),
        (["A=b=c", "HERE", "PAID=$$5"], ("A=b=c", "HERE", "PAID=$5")),
    ],
)
def test_variables(written: object, variables: tuple[str, ...]) -> None:
    assert service(environment=written).environment == variables


@given(st.dictionaries(PLAIN, PLAIN))
def test_a_table_and_a_list_of_variables_are_the_same(variables: dict[str, str]) -> None:
    listed = [f"{name}={value}" for name, value in variables.items()]
    assert service(environment=variables).environment == tuple(listed)
    assert service(environment=listed).environment == tuple(listed)


def test_mounts_in_both_forms() -> None:
    bind = {"type": "bind", "source": "./x", "target": "/x", "read_only": True}
    found = service(volumes=["./data:/data:ro", "~/conf:/conf", bind])
    texts = [volume.text for volume in found.volumes]
    assert texts == ["./data:/data:ro", "~/conf:/conf", "./x:/x:ro"]
    assert found.volumes[0] == ServiceVolume("./data", "/data", is_read_only=True)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"volumes": ["pg:/var/lib/pg"]}, "keeps the files of volume pg, so /var/lib/pg has"),
        ({"volumes": ["/cache"]}, "/cache is an anonymous volume"),
        (
            {"volumes": [{"type": "volume", "source": "pg", "target": "/v"}]},
            "keeps the files of volume pg",
        ),
        ({"volumes": [{"type": "tmpfs", "target": "/t"}]}, "the tmpfs at /t is left out"),
        ({"ports": ["8080:80"]}, "port 80 is not mapped to 8080"),
        ({"ports": [{"target": 80, "published": "8080"}]}, "port 80 is not mapped to 8080"),
        ({"ports": ["3000-3005"]}, "port 3000-3005 is not published"),
        ({"depends_on": ["db", "cache"]}, "depends_on: db, cache is not started"),
        ({"depends_on": {"db": {"condition": "service_healthy"}}}, "depends_on: db is not"),
        ({"privileged": True, "shm_size": "1g"}, "left out: privileged, shm_size"),
    ],
)
def test_what_a_replay_leaves_out_is_said(keys: dict[str, Any], says: str) -> None:
    [note] = service(**keys).notes
    assert says in note


def test_ports_are_those_of_the_container() -> None:
    written = ["80", "127.0.0.1:81:81", 82, {"target": 83}, "84:84/tcp"]
    found = service(ports=written)
    assert (found.ports, found.notes) == ((80, 81, 82, 83, 84), ())


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"image": "own:${TAG}"}, "image of service web contains a variable"),
        ({"environment": {"A": "$B"}}, "environment of service web contains a variable"),
        ({"command": "serve 'x"}, "is not a command: No closing quotation"),
        ({"environment": {"A": {"b": 1}}}, "'A' is not a variable"),
        ({"env_file": [{"required": False}]}, "env_file of service web has no path"),
        ({"volumes": ["./a:/b:ro:x"]}, "is not a mount"),
    ],
)
def test_what_cannot_be_replayed(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(PagecageError, match=says) as refused:
        service(**keys)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("web", "names no image", "docker compose -f c.yaml build web"),
        ("wab", "no service 'wab'", "web"),
    ],
    ids=["built", "unknown"],
)
def test_a_service_without_an_image(name: str, says: str, hint: str) -> None:
    document = read_document("services: {web: {build: .}}", "c.yaml")
    with pytest.raises(PagecageError, match=says) as refused:
        read_service(document, name, "c.yaml")
    assert hint in refused.value.hint


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | PLAIN | st.just("a:b:c:d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN | st.integers(), inner),
    max_leaves=5,
)
KEYS = ("image", "command", "environment", "env_file", "volumes", "ports", "user", "depends_on")


@given(st.dictionaries(st.sampled_from(KEYS), TREES))
def test_any_service_is_read_or_refused(keys: dict[str, Any]) -> None:
    with suppress(PagecageError):
        assert isinstance(service(**keys), ComposeService)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("A=b", ["A=b"]),
        (" A = b ", ["A=b"]),
        ("export A=b", ["A=b"]),
        ("A", ["A"]),
        ("A=", ["A="]),
        ("A=b # why", ["A=b"]),
        ("A=b#c", ["A=b#c"]),
        ("A=# why", ["A="]),
        ('A="b c" # why', ["A=b c"]),
        ('A="b\\nc\\"d"', ['A=b\nc"d']),
        ("A='b $c \\n'", ["A=b $c \\n"]),
        ("# A=b", []),
        ("", []),
    ],
)
def test_a_line_of_an_env_file(line: str, entry: list[str]) -> None:
    assert list(compose_variables(line, "x.env")) == entry


@pytest.mark.parametrize(
    ("text", "says"),
    [("A=b\n=c", "line 2 is not NAME=VALUE"), ("A=$B", "line 1 contains a variable")],
)
def test_a_line_that_is_none(text: str, says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        list(compose_variables(text, "x.env"))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        entries = list(compose_variables(text, "x.env"))
    except PagecageError:
        return
    assert all(entry and not entry.startswith("=") for entry in entries)
