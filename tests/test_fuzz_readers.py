"""Mutated files for every importer and for the unpacker: refused in a sentence, within bounds.

Each example runs in a child process with little memory and a limit of time.
"""

from __future__ import annotations

import contextlib
import copy
import json
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagecage.bundle.pack import is_allowed
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError
from pagecage.importers.compose import compose_variables, read_service
from pagecage.importers.document import read_document
from tests.builders.imports import FOLDER, read
from tests.fixtures.bundles import contents
from tests.fixtures.hostile_bundles import with_files
from tests.fixtures.small_runs import FOLDER as BUNDLES

pytestmark = pytest.mark.long
EXAMPLES = 600
SECONDS = 10
MORE_BYTES = 768 << 20
"""Memory of a child beyond that of this process."""
ODD = (
    *(
        None,
        True,
        -1,
        0,
        10**30,
        1.5,
        -0.0,
        float("inf"),
        float("nan"),
        "",
        "x",
        "\0",
        "-1",
        "1e999",
    ),
    *([], {}, [[]], {"": None}, "9" * 5000, "\u202e", "128Mi", "0x", "../../x", [None] * 50),
)
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".json", ".yaml", ".txt"))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container in a tree with every key or index of it."""
    inner = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    found = [(value, key) for key, _ in inner]
    return found + [place for _, item in inner for place in places(item)]


def with_other_value(text: str, chance: random.Random, load: Any, dump: Any) -> str:
    tree = load(text)
    for _ in range(chance.randint(1, 4)):
        container, key = chance.choice(places(tree) or [({"x": 1}, "x")])
        if isinstance(container, dict) and key not in container:
            continue
        if isinstance(container, list) and key >= len(container):
            continue
        match chance.randint(0, 2):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[str(chance.choice(ODD))] = container.pop(key)
            case _:
                container[key] = copy.deepcopy(chance.choice(ODD))
    return str(dump(tree))


def with_other_bytes(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 6)):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + chance.choice((1, 4, 200, len(data))))
        new = chance.choice(
            (
                b"",
                chance.randbytes(chance.randint(1, 8)),
                data[at:end] * 2,
                b"[" * 3000,
                b"- " * 999,
            )
        )
        data = (data[:at] + new + data[end:]) or b"x"
    return data


def mutated(name: str, chance: random.Random) -> str:
    data = (FOLDER / name).read_bytes()
    if chance.random() < 0.5 and name.endswith((".json", ".yaml")):
        if name.endswith(".json"):
            return with_other_value(data.decode(), chance, json.loads, json.dumps)
        load = lambda text: list(yaml.safe_load_all(text))  # noqa: E731
        return with_other_value(data.decode(), chance, load, yaml.safe_dump_all)
    return with_other_bytes(data, chance).decode(errors="replace")


def in_child(attempt: Callable[[random.Random], None], seeds: range) -> None:
    """Run an attempt for each seed in a child; fail with its traceback, or with its signal."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)

    def work() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, used + MORE_BYTES))
        warnings.simplefilter("ignore")
        for seed in seeds:
            signal.alarm(SECONDS)
            try:
                attempt(random.Random(seed))
            except PagecageError as error:
                if "\n" in error.message or not error.message:
                    writer.send(f"seed {seed}: {error.message!r}")
            except BaseException:  # noqa: BLE001 - any other exception is the finding
                writer.send(f"seed {seed}: {traceback.format_exc()}")
        writer.send(None)
        os._exit(0)

    child = context.Process(target=work)
    child.start()
    writer.close()
    try:
        found = []
        while (message := reader.recv()) is not None:
            found.append(message)
        assert not found, "\n".join(found[:3])
    except EOFError:
        child.join()
        pytest.fail(f"the child ended with {child.exitcode}: too much time or memory")
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("name", FILES)
def test_every_importer_reads_or_refuses_mutated_files(name: str) -> None:
    def attempt(chance: random.Random) -> None:
        text = mutated(name, chance)
        read(text, *chance.choice(((), ("db",), ("x", "y"))))

    in_child(attempt, range(EXAMPLES))


def test_a_compose_service_and_a_file_of_variables() -> None:
    def service(chance: random.Random) -> None:
        read_service(read_document(mutated("compose.yaml", chance), "it"), "db", "it")

    def variables(chance: random.Random) -> None:
        text = with_other_bytes(b"A=1\nB='x y'\n# c\nC=\"a\\nb\"\n", chance).decode(
            errors="replace"
        )
        list(compose_variables(text, "it"))

    in_child(service, range(EXAMPLES))
    in_child(variables, range(EXAMPLES))


def test_references_that_grow_without_bound() -> None:
    """YAML's references make a tree of 10^12 leaves in a few lines."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    bomb = "\n".join(lines)

    def attempt(_: random.Random) -> None:
        for text in (f"{bomb}\nservices: {{db: {{environment: *a11, mem_limit: *a11}}}}", bomb):
            with contextlib.suppress(PagecageError):
                read(text)
            with contextlib.suppress(PagecageError):
                read_service(read_document(text, "it"), "db", "it")

    in_child(attempt, range(1))


def tampered(chance: random.Random, target: Path) -> None:
    """Write a bundle with other bytes, or with other values in its manifest, plan and records."""
    source = BUNDLES / "smoke.pagecage.zip"
    if chance.random() < 0.5:
        target.write_bytes(with_other_bytes(source.read_bytes(), chance))
        return
    files = contents(source)  # type: ignore[no-untyped-call]
    changed = {
        name: with_other_value(files[name].decode(), chance, json.loads, json.dumps).encode()
        for name in ("plan.json",)
    }
    manifest = with_other_value(files["bundle.json"].decode(), chance, json.loads, json.dumps)
    tree = json.loads(manifest)
    more = tree if isinstance(tree, dict) and chance.random() < 0.7 else {}
    with_files(source, target, changed, **more)


def test_the_unpacker_writes_files_of_a_run_or_refuses() -> None:
    def attempt(chance: random.Random) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            top = Path(scratch)
            tampered(chance, top / "bad.zip")
            try:
                unpack(top / "bad.zip", top / "deep/out")
            finally:
                written = [path for path in top.rglob("*") if path.is_file()]
                names = [path.relative_to(top).as_posix() for path in written]
                own = ("bad.zip", "deep/out/bundle.json")
                assert all(
                    name in own or is_allowed(name.removeprefix("deep/out/")) for name in names
                ), names

    in_child(attempt, range(EXAMPLES))
