"""Mutated files for every reader of files from elsewhere: refused in a sentence, within bounds.

Importers, unpackers, and readers of runs, fleets, baselines and image archives. Hypothesis draws
the mutations. The examples run in a child process with little memory and a limit of time, in a
folder outside of which no file may appear.
"""

from __future__ import annotations

import bz2
import contextlib
import copy
import gzip
import io
import json
import lzma
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tarfile
import tempfile
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis import results
from analysis.data.baseline import baseline_of
from analysis.data.load import load_run
from analysis.exchange import responses_of
from analysis.volumes import read_checks
from pagecage.agent.drivers.container import UNLOADABLE, write_renamed
from pagecage.bundle.pack import is_allowed
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError
from pagecage.importers.compose import compose_variables, read_service
from pagecage.importers.document import read_document
from pagecage.model.trial import DIGEST
from pagecage.runner.images import check_platform, image_program, read_archive
from pagecage.runner.run_folder import RunFolder
from tests.builders.image_archive import config_of, layer, write_archive
from tests.builders.imports import FOLDER, read, read_files
from tests.fixtures.bundles import contents
from tests.fixtures.fleets import build_fleet
from tests.fixtures.hostile_bundles import with_files
from tests.fixtures.small_runs import FOLDER as BUNDLES
from tests.fixtures.small_runs import unpacked
from tests.tree import ROOT

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


Attempt = Callable[[random.Random, Path], None]
"""A function that gives a reader one mutated file, written to a folder that it may write to."""


def in_child(attempt: Attempt, examples: int = EXAMPLES) -> None:
    """Run an attempt in a child for each source of chance that hypothesis draws.

    Fails with the child's traceback, or with the signal that ended it: too much time or memory.
    """
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(attempt, examples, writer))
    child.start()
    writer.close()
    try:
        found = reader.recv()
    except EOFError:
        child.join()
        pytest.fail(f"the child ended with {child.exitcode}: too much time or memory")
    finally:
        child.kill()
        child.join()
    assert not found, found


def _work(attempt: Attempt, examples: int, writer: Connection) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, used + MORE_BYTES))
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has a handler

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def try_one(chance: random.Random) -> None:
        signal.alarm(SECONDS)
        _attempt(attempt, chance)

    try:
        try_one()
    except BaseException as error:  # noqa: BLE001 - each is a finding
        writer.send("".join(traceback.format_exception(error, limit=-6)))
    writer.send("")
    os._exit(0)


def _attempt(attempt: Attempt, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        own = top / "deep/er"
        own.mkdir(parents=True)
        os.chdir(own)
        message = "read"
        try:
            attempt(chance, own)
        except PagecageError as error:
            message = error.message
        assert message, "a refusal without a sentence"
        assert "\n" not in message, message
        strange = [path for path in top.rglob("*") if not path.is_relative_to(own)]
        assert strange == [own.parent], strange


def test_too_much_memory_is_seen() -> None:
    with pytest.raises(AssertionError, match="MemoryError"):
        in_child(lambda *_: setattr(random, "kept", bytearray(2 * MORE_BYTES)), 1)


def test_too_much_time_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_fuzz_readers.SECONDS", 1)
    with pytest.raises(pytest.fail.Exception, match="too much time"):
        in_child(lambda *_: signal.pause(), 1)


def test_a_file_that_is_written_elsewhere_is_seen() -> None:
    with pytest.raises(AssertionError, match="escaped"):
        in_child(lambda _, own: (own.parent / "escaped").touch(), 1)


def test_a_traceback_and_a_refusal_of_two_lines_are_seen() -> None:
    def refuse(chance: random.Random, _: Path) -> None:
        raise PagecageError("one\nmore") if chance.random() < 2 else KeyError("x")

    with pytest.raises(AssertionError, match=r"'\\n' not in 'one"):
        in_child(refuse, 1)
    with pytest.raises(AssertionError, match="KeyError"):
        in_child(lambda *_: {}["x"], 1)


@pytest.mark.parametrize("name", FILES)
def test_every_importer_reads_or_refuses_mutated_files(name: str) -> None:
    def attempt(chance: random.Random, _: Path) -> None:
        text = mutated(name, chance)
        read(text, *chance.choice(((), ("db",), ("x", "y"))))

    in_child(attempt)


def test_counters_of_a_volume_before_and_after() -> None:
    def attempt(chance: random.Random, _: Path) -> None:
        names = ["nvme-amzn-stats-before.json", "nvme-amzn-stats.json"]
        texts = [(FOLDER / name).read_text() for name in names]
        texts[chance.randrange(2)] = mutated(chance.choice(names), chance)
        read_files(*texts, seconds=chance.choice((None, 60.0)))

    in_child(attempt)


def test_a_compose_service_and_a_file_of_variables() -> None:
    def service(chance: random.Random, _: Path) -> None:
        read_service(read_document(mutated("compose.yaml", chance), "it"), "db", "it")

    def variables(chance: random.Random, _: Path) -> None:
        text = with_other_bytes(b"A=1\nB='x y'\n# c\nC=\"a\\nb\"\n", chance).decode(
            errors="replace"
        )
        list(compose_variables(text, "it"))

    in_child(service)
    in_child(variables)


def test_references_that_grow_without_bound() -> None:
    """YAML's references make a tree of 10^12 leaves in a few lines."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    bomb = "\n".join(lines)

    def attempt(*_: object) -> None:
        for text in (f"{bomb}\nservices: {{db: {{environment: *a11, mem_limit: *a11}}}}", bomb):
            with contextlib.suppress(PagecageError):
                read(text)
            with contextlib.suppress(PagecageError):
                read_service(read_document(text, "it"), "db", "it")

    in_child(attempt, 1)


def tampered(chance: random.Random, target: Path) -> None:
    """Write a bundle with other bytes, or with other values in its manifest, plan and records."""
    source = BUNDLES / "smoke.pagecage.zip"
    if chance.random() < 0.5:
        target.write_bytes(with_other_bytes(source.read_bytes(), chance))
        return
    files = contents(source)
    changed = {
        name: with_other_value(files[name].decode(), chance, json.loads, json.dumps).encode()
        for name in ("plan.json",)
    }
    manifest = with_other_value(files["bundle.json"].decode(), chance, json.loads, json.dumps)
    tree = json.loads(manifest)
    more = tree if isinstance(tree, dict) and chance.random() < 0.7 else {}
    with_files(source, target, changed, **more)


def test_the_unpacker_writes_files_of_a_run_or_refuses() -> None:
    def attempt(chance: random.Random, own: Path) -> None:
        tampered(chance, own / "bad.zip")
        try:
            unpack(own / "bad.zip", own / "out")
        finally:
            paths = [path for path in own.rglob("*") if path.is_file()]
            names = [path.relative_to(own).as_posix() for path in paths]
            known = ("bad.zip", "out/bundle.json")
            assert all(name in known or is_allowed(name.removeprefix("out/")) for name in names), (
                names
            )

    in_child(attempt)


def without_digests(text: str, chance: random.Random) -> str:
    """Change values of an object; drop the digest that would show it, or leave it."""
    tree = json.loads(with_other_value(text, chance, json.loads, json.dumps))
    if isinstance(tree, dict) and chance.random() < 0.9:
        tree = {key: value for key, value in tree.items() if not key.endswith("_sha256")}
    return json.dumps(tree)


def spoil(path: Path, chance: random.Random) -> None:
    """Change values of a file of JSON, or of one of its lines; or its bytes."""
    data = path.read_bytes()
    if chance.random() < 0.3 or not data.strip():
        path.write_bytes(with_other_bytes(data, chance))
    elif path.suffix == ".jsonl":
        lines = data.decode().splitlines()
        place = chance.randrange(len(lines))
        lines[place] = without_digests(lines[place], chance)
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        path.write_text(without_digests(data.decode(), chance))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("smoke", tmp_path_factory.mktemp("kept") / "run")


def test_files_of_a_run_are_read_or_refused(smoke: Path) -> None:
    """Plan, records, facts, a sampler's trace, and the list of a bundle's files."""
    names = [path.relative_to(smoke).as_posix() for path in (smoke / "facts").iterdir()]
    names += [path.relative_to(smoke).as_posix() for path in smoke.glob("trials/*/sampler.jsonl")]
    names += ["plan.json", "records.jsonl"] * len(names) + ["bundle.json"]

    def attempt(chance: random.Random, own: Path) -> None:
        shutil.copytree(smoke, own / "run")
        for name in {chance.choice(names), chance.choice(names)}:
            spoil(own / "run" / name, chance)
        with contextlib.suppress(PagecageError):
            RunFolder(own / "run").plan()
        loaded = results.load(own / "run")
        results.tables(loaded, chance.choice(("", "json", "csv", "markdown")))

    in_child(attempt)


def test_files_of_a_fleet_are_read_or_refused(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path / "fleet", {"one": None, "two": None}, repeats=1)

    def attempt(chance: random.Random, own: Path) -> None:
        shutil.copytree(fleet, own / "fleet", symlinks=True)
        spoil(own / "fleet" / chance.choice(("fleet.json", "rounds.jsonl")), chance)
        results.tables(results.load(own / "fleet"), chance.choice(("", "json", "csv", "markdown")))

    in_child(attempt, EXAMPLES // 4)


def test_a_baseline_is_read_or_refused(smoke: Path) -> None:
    run = load_run(smoke)
    text = json.dumps(baseline_of(run, responses_of(run)))

    def attempt(chance: random.Random, own: Path) -> None:
        (own / "baseline.json").write_text(text)
        spoil(own / "baseline.json", chance)
        form = chance.choice(("", "json", "csv", "markdown"))
        results.compared([own / "baseline.json", smoke], (), (), form, anyway=True)

    in_child(attempt)


def test_checks_of_volumes_are_read_or_refused() -> None:
    kept = ROOT / "docs/fidelity/aws-gp2.check.json"

    def attempt(chance: random.Random, own: Path) -> None:
        (own / kept.name).write_bytes(kept.read_bytes())
        spoil(own / kept.name, chance)
        read_checks(own)

    in_child(attempt)


def archived(chance: random.Random, path: Path) -> str:
    """Write the archive of an image with other bytes or values; return the id of the image."""
    layers = [layer({"bin/own": b"x" * 3000}), layer({"data": b"y"})]
    image_id = write_archive(path, layers, config_of(layers, Entrypoint=["/own"], Cmd=["-a"]))
    if chance.random() < 0.5:
        with tarfile.open(path) as archive:
            files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        name = chance.choice(["manifest.json", f"{image_id.removeprefix(DIGEST)}.json"])
        spoilt = with_other_value(files[name].decode(), chance, json.loads, json.dumps)
        with tarfile.open(path, "w") as archive:
            for other, data in {**files, name: spoilt.encode()}.items():
                entry = tarfile.TarInfo(other)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    data = path.read_bytes()
    if chance.random() < 0.5:
        data = with_other_bytes(data, chance)
    pack = chance.choice((bytes, gzip.compress, lzma.compress, bz2.compress))
    data = pack(data)
    path.write_bytes(with_other_bytes(data, chance) if chance.random() < 0.3 else data)
    return image_id


def test_an_image_archive_is_read_or_refused() -> None:
    """By the controller, and by the agent, which writes what an engine gets."""

    def attempt(chance: random.Random, own: Path) -> None:
        image_id = archived(chance, own / "image.tar")
        with contextlib.suppress(*UNLOADABLE), (own / "renamed.tar").open("wb") as file:
            write_renamed(own / "image.tar", image_id, file)
        config = read_archive(own / "image.tar")
        check_platform(config, "it")
        image_program(config, "it", (), None)

    in_child(attempt)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_name_that_would_fill_the_memory_is_refused(kind: bytes) -> None:
    """Compressed, a name of 2 GiB takes 2 MB."""

    def attempt(_: random.Random, own: Path) -> None:
        entry = tarfile.TarInfo("name")
        entry.type, entry.size = kind, 2 << 30
        with gzip.open(own / "image.tar", "wb", compresslevel=1) as file:
            file.write(entry.tobuf(tarfile.GNU_FORMAT))
            for _ in range(2 << 10):
                file.write(bytes(1 << 20))
        with pytest.raises(UNLOADABLE), (own / "renamed.tar").open("wb") as out:
            write_renamed(own / "image.tar", "sha256:0", out)
        read_archive(own / "image.tar")

    in_child(attempt, 1)


@pytest.mark.parametrize("name", ["records.jsonl", "rounds.jsonl"])
def test_a_line_without_an_end_is_refused(smoke: Path, tmp_path: Path, name: str) -> None:
    """Of zeros, it takes no room on the disk."""
    fleet = build_fleet(tmp_path / "fleet", {"one": None}, repeats=1)

    def attempt(_: random.Random, own: Path) -> None:
        folder = own / "read"
        shutil.copytree(smoke if name == "records.jsonl" else fleet, folder, symlinks=True)
        with (folder / name).open("r+b") as file:
            file.truncate(8 << 30)
        results.load(folder)

    in_child(attempt, 1)
