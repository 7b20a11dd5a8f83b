"""Any tree, changed in any way, is restored: bytes, modes, times, links, holes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.agent.prepared import file_content, saved_tree
from pagecage.agent.prepared.file_tree import difference, scan, with_digests
from pagecage.agent.prepared.saved_tree import DATA, ORIGINAL, SavedTree, restore, save
from pagecage.agent.system.page_cache import resident_bytes
from pagecage.errors import HostError
from tests.tree import ROOT

MACHINE = "boot None None"
NAMES = st.sampled_from(["a", "b", "c", "ä\udce4", "d e"])
PIECES = st.sampled_from([b"", b"x", b"y" * 5000, bytes(9000), b"z" * 300_000])
MODES = st.sampled_from([0o644, 0o600, 0o444, 0o4755, 0o000])
STEP = st.tuples(
    st.sampled_from(
        [
            *("write", "append", "overwrite", "truncate", "extend", "punch", "remove", "mkdir"),
            *("symlink", "link", "chmod", "touch", "rename", "fifo", "xattr", "chown"),
        ]
    ),
    st.integers(0, 30),
    NAMES,
    PIECES,
    MODES,
)
STEPS = st.lists(STEP, max_size=12)


def paths(root: Path) -> list[Path]:
    """Return the root and every path below it, in a fixed order."""
    return [root, *sorted(root.rglob("*"))]


def is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def change(root: Path, step: tuple[str, int, str, bytes, int]) -> None:
    """Apply one step to a path of the tree; a step that is impossible there changes nothing."""
    what, number, name, content, mode = step
    every = paths(root)
    path = every[number % len(every)]
    folder = path if path.is_dir() and not path.is_symlink() else path.parent
    new = folder / name
    plain = [one for one in every if is_plain(one)]
    file = plain[number % len(plain)] if plain else None
    if what == "mkdir" and not os.path.lexists(new):
        new.mkdir()
    elif what == "write" and (is_plain(new) or not os.path.lexists(new)):
        new.write_bytes(content)
    elif what == "symlink" and not os.path.lexists(new):
        new.symlink_to(f"./{name}//{number}")
    elif what == "fifo" and not os.path.lexists(new):
        os.mkfifo(new)
    elif what == "link" and file and not os.path.lexists(new):
        new.hardlink_to(file)
    elif what == "rename" and path != root and not os.path.lexists(new):
        if not new.is_relative_to(path):
            path.rename(new)
    elif what == "remove" and path != root:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    elif what == "chmod" and not path.is_symlink():
        path.chmod(mode | (0o700 if path.is_dir() else 0))
    elif what == "chown" and os.getuid() == 0:
        os.chown(path, number, number, follow_symlinks=False)
    elif what == "touch":
        os.utime(path, ns=(1, number * 10**9 + 1), follow_symlinks=False)
    elif what == "xattr" and file:
        os.setxattr(file, "user.pagecage", content[:8])
    elif file:
        change_content(file, what, number, content)


def change_content(file: Path, what: str, number: int, content: bytes) -> None:
    size, times = file.stat().st_size, file.stat()
    descriptor = os.open(file, os.O_RDWR)
    try:
        if what == "append":
            os.pwrite(descriptor, content, size)
        elif what == "overwrite":
            os.pwrite(descriptor, content, number * 1000)
            os.utime(descriptor, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if nothing was
        elif what == "truncate":
            os.ftruncate(descriptor, size // 2)
        elif what == "extend":
            os.ftruncate(descriptor, size + 10_000)
        elif what == "punch":
            file_content._LIBC.fallocate(descriptor, 3, 4096, 8192)
    finally:
        os.close(descriptor)


@pytest.fixture
def base() -> Iterator[Path]:
    """Make a directory on the checkout's disk, whose file system has holes and links."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=ROOT / "build/tests"))
    yield path
    shutil.rmtree(path)


def saved_of(base: Path, steps: list[tuple[str, int, str, bytes, int]]) -> SavedTree:
    """Save a tree that the steps have made."""
    (base / ORIGINAL).mkdir(mode=0o755)
    for step in steps:
        change(base / ORIGINAL, step)
    return save(base, ORIGINAL)


def holes(root: Path) -> dict[str, int]:
    """Return the bytes of data, without holes, of every file."""
    found = {}
    for path in sorted(root.rglob("*")):
        if is_plain(path) and os.access(path, os.R_OK):
            with path.open("rb") as file:
                ranges = file_content._ranges(file.fileno(), path.stat().st_size)
                found[str(path.relative_to(root))] = sum(
                    e - s for s, e, is_data in ranges if is_data
                )
    return found


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(STEPS, min_size=1, max_size=3))
def test_any_change_is_undone(made: list[object], rounds: list[list[object]]) -> None:
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        base = Path(folder)
        saved = saved_of(base, made)
        restore(saved, base, MACHINE)
        for steps in rounds:
            for step in steps:
                change(base / DATA, step)
            restore(saved, base, MACHINE)
            found = with_digests(base / DATA, scan(base / DATA))
            assert difference(saved.entries, found) is None
            assert holes(base / DATA) == holes(base / ORIGINAL)
            assert read_digests(base / ORIGINAL) == read_digests(base / DATA)


def read_digests(root: Path) -> dict[str, str | None]:
    return {path: one.digest for path, one in with_digests(root, scan(root)).items()}


FEW = [("write", 0, "a", b"y" * 5000, 0), ("write", 0, "b", b"z" * 300_000, 0)]


def test_a_second_restoration_copies_what_changed(base: Path) -> None:
    saved = saved_of(base, FEW)
    first = restore(saved, base, MACHINE)
    assert (first.changed_files, first.copied_bytes) == (2, 305_000)
    again = restore(saved, base, MACHINE)
    assert (again.changed_files, again.copied_bytes) == (0, 0)
    with (base / DATA / "b").open("r+b") as file:
        file.write(b"!")
    inode = (base / DATA / "b").stat().st_ino
    third = restore(saved, base, MACHINE)
    assert (third.changed_files, third.copied_bytes) == (1, 256 * 1024)
    assert (base / DATA / "b").stat().st_ino == inode, "it keeps its blocks"


@pytest.mark.parametrize("machine", ["another boot", MACHINE])
def test_signatures_of_another_machine_state_do_not_count(base: Path, machine: str) -> None:
    """A crash can keep what was written to a file and lose its times."""
    saved = saved_of(base, FEW)
    restore(saved, base, MACHINE)
    assert restore(saved, base, machine).changed_files == (0 if machine == MACHINE else 2)


@pytest.mark.parametrize("step", ["run", "_prove"])
def test_a_restoration_that_was_cut_short_is_repeated(
    base: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    saved = saved_of(base, FEW)
    restore(saved, base, MACHINE)
    owner: object = saved_tree.TreeRestore if step == "run" else saved_tree

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            restore(saved, base, MACHINE)
    assert restore(saved, base, MACHINE).changed_files == 2


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: (data / "a").write_bytes(b"n" * 5000), "a has another mtime_ns"),
        (lambda data: (data / "a").chmod(0o600), "a has another mode"),
        (lambda data: (data / "new").touch(), "new is there"),
        (lambda data: (data / "a").unlink(), "a is missing"),
    ],
)
def test_a_tree_that_is_not_equal_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, says: str
) -> None:
    saved = saved_of(base, [*FEW, ("touch", 0, "a", b"", 0)])
    restore(saved, base, MACHINE)
    real = saved_tree.sync_file_system

    def sync_and_spoil(path: Path) -> None:
        real(path)
        spoil(base / DATA)

    monkeypatch.setattr(saved_tree, "sync_file_system", sync_and_spoil)
    with pytest.raises(HostError, match=says):
        restore(saved, base, MACHINE)


def test_a_content_that_is_not_the_originals_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = saved_of(base, FEW)
    real = saved_tree.sync_file_system

    def flip_a_byte(path: Path) -> None:
        real(path)
        file = base / DATA / "a"
        times = file.stat()
        file.write_bytes(b"n" + file.read_bytes()[1:])
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    monkeypatch.setattr(saved_tree, "sync_file_system", flip_a_byte)
    with pytest.raises(HostError, match="a has another content"):
        restore(saved, base, MACHINE)


def test_nothing_of_the_trees_stays_in_the_page_cache(base: Path) -> None:
    saved = saved_of(base, FEW)
    restore(saved, base, MACHINE)
    found = [resident_bytes(base / tree / "b") for tree in (ORIGINAL, DATA)]
    assert found == [0, 0]


def test_without_room_nothing_is_copied(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = saved_of(base, FEW)
    needed: list[int] = []

    def full(_: Path, need_bytes: int, what: str) -> None:
        needed.append(need_bytes)
        raise HostError(f"{what} does not fit")

    monkeypatch.setattr(saved_tree, "require_room", full)
    with pytest.raises(HostError, match="a copy does not fit"):
        restore(saved, base, MACHINE)
    assert needed == [305_000]
    assert not (base / DATA).exists()
