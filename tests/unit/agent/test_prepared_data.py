"""Any tree, changed in any way, is restored: bytes, modes, times, links, holes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.agent import file_trees, prepared_data
from pagecage.agent.file_trees import (
    TreeRestore,
    difference,
    scan,
    sync_file_system,
    with_digests,
)
from pagecage.agent.prepared_data import SavedTree, restore, save
from pagecage.errors import HostError
from pagecage.linux.page_cache import resident_bytes
from pagecage.model.trial import DATA, ORIGINAL
from tests.tree import ROOT

Spoil = Callable[[Path], object]
Step = tuple[str, int, str, bytes, int]
"""A step: its name, a number that chooses a path, a name, a content, and a mode."""
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


def change(root: Path, step: Step) -> None:
    """Apply one step to a path of the tree; a step that is impossible there changes nothing."""
    what, number, name, content, mode = step
    every = paths(root)
    path = every[number % len(every)]
    folder = path if path.is_dir() and not path.is_symlink() else path.parent
    plain = [one for one in every if is_plain(one)]
    file = plain[number % len(plain)] if plain else None
    new = folder / name
    if not os.path.lexists(new):
        add(new, what, number, path, file, content)
    elif what == "write" and is_plain(new):
        new.write_bytes(content)
    if what == "remove" and path != root:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    elif os.path.lexists(path):
        change_metadata(path, what, number, mode)
    if file and os.path.lexists(file):
        change_content(file, what, number, content)


def add(new: Path, what: str, number: int, path: Path, file: Path | None, content: bytes) -> None:
    """Make a path that is not there."""
    if what == "mkdir":
        new.mkdir()
    elif what == "write":
        new.write_bytes(content)
    elif what == "symlink":
        new.symlink_to(f"./{new.name}//{number}")
    elif what == "fifo":
        os.mkfifo(new)
    elif what == "link" and file:
        new.hardlink_to(file)
    elif what == "rename" and not new.is_relative_to(path) and path.name not in (ORIGINAL, DATA):
        path.rename(new)


def change_metadata(path: Path, what: str, number: int, mode: int) -> None:
    if what == "chmod" and not path.is_symlink():
        path.chmod(mode | (0o700 if path.is_dir() else 0))
    elif what == "chown" and os.getuid() == 0:
        os.chown(path, number, number, follow_symlinks=False)
    elif what == "touch":
        os.utime(path, ns=(1, number * 10**9 + 1), follow_symlinks=False)


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
            file_trees._LIBC.fallocate(descriptor, 3, 4096, 8192)
        elif what == "xattr":
            os.setxattr(descriptor, "user.pagecage", content[:8])
    finally:
        os.close(descriptor)


@pytest.fixture
def base(on_disk: Path) -> Path:
    """A directory on the checkout's disk, whose file system has holes and links."""
    return on_disk


def saved_of(base: Path, steps: list[Step]) -> SavedTree:
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
                ranges = file_trees._ranges(file.fileno(), path.stat().st_size)
                data_bytes = sum(end - start for start, end, is_data in ranges if is_data)
                found[str(path.relative_to(root))] = data_bytes
    return found


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(STEPS, min_size=1, max_size=3))
def test_any_change_is_undone(made: list[Step], rounds: list[list[Step]]) -> None:
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


def relink(data: Path, *pairs: tuple[str, str]) -> None:
    """Make each second path a link to the first one's file."""
    for first, second in pairs:
        (data / second).unlink(missing_ok=True)
        (data / second).hardlink_to(data / first)


def separate(data: Path) -> None:
    """Make the second link a file of its own, with the same content."""
    shutil.copy2(data / "a2", data / "new")
    (data / "new").rename(data / "a2")


def exchange(data: Path) -> None:
    relink(data, ("a2", "x"), ("b2", "a2"), ("x", "b1"))
    (data / "x").unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        separate,
        lambda data: relink(data, ("a1", "b1")),
        lambda data: relink(data, ("a1", "b1"), ("a2", "b2"), ("a1", "b2")),
        exchange,
        lambda data: [(data / "link").unlink(), (data / "link").symlink_to("elsewhere")],
    ],
)
def test_links_are_what_they_were(base: Path, spoil: Spoil) -> None:
    """Files of other groups may share an inode after a trial, and then have the same content."""
    original = base / ORIGINAL
    original.mkdir()
    for name in ("a", "b"):
        (original / f"{name}1").write_text(name)
        (original / f"{name}2").hardlink_to(original / f"{name}1")
    (original / "link").symlink_to("a1")
    saved = save(base, ORIGINAL)
    restore(saved, base, MACHINE)
    spoil(base / DATA)
    restore(saved, base, MACHINE)
    assert read_digests(base / DATA) == read_digests(base / ORIGINAL)
    assert os.readlink(base / DATA / "link") == "a1"  # noqa: PTH115


def test_a_file_that_is_linked_outside_is_left_there(base: Path) -> None:
    saved = saved_of(base, FEW)
    restore(saved, base, MACHINE)
    (base / "kept").hardlink_to(base / DATA / "a")
    (base / "kept").write_text("the trial's result")
    restore(saved, base, MACHINE)
    assert (base / "kept").read_text() == "the trial's result"


def test_a_write_that_hides_its_time_is_found(base: Path) -> None:
    saved = saved_of(base, [("write", 0, "a", b"y" * 5000, 0)])
    restore(saved, base, MACHINE)
    change_content(base / DATA / "a", "overwrite", 1, b"n")
    restore(saved, base, MACHINE)
    assert (base / DATA / "a").read_bytes() == b"y" * 5000


@pytest.mark.usefixtures("no_reflink")
def test_holes_are_holes_and_reserved_blocks_are_reserved(base: Path) -> None:
    """Each file is overwritten as a whole, and then has the blocks of its original again."""
    original = base / ORIGINAL
    original.mkdir()
    for name in ("hole", "end", "zeros", "reserved"):
        (original / name).write_bytes(b"" if name in ("hole", "reserved") else bytes(100_000))
    os.truncate(original / "hole", 99_999)
    os.truncate(original / "end", 199_999)
    with (original / "reserved").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 98_304)
    saved = save(base, ORIGINAL)
    wanted = blocks(original)
    assert [wanted["hole"], wanted["reserved"]] == [(0, 0), (192, 0)]
    for _ in range(2):
        restore(saved, base, MACHINE)
        assert blocks(base / DATA) == wanted
        for name in wanted:
            (base / DATA / name).write_bytes(b"n" * 300_000)


def blocks(root: Path) -> dict[str, tuple[int, int]]:
    """Return the blocks of every file, and its bytes of data without holes."""
    return {name: ((root / name).stat().st_blocks, found) for name, found in holes(root).items()}


FEW = [("write", 0, "a", b"y" * 5000, 0), ("write", 0, "b", b"z" * 300_000, 0)]


@pytest.fixture
def no_reflink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to share extents, as ext4 does."""
    monkeypatch.setattr(prepared_data, "reflinks", lambda *_: False)


def test_extents_are_shared_where_the_file_system_can(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in of the kernel's FICLONE copies; XFS and btrfs were tried by hand."""

    def ficlone(target: int, request: int, source: int) -> int:
        assert request == 0x40049409
        return os.pwrite(target, os.pread(source, os.fstat(source).st_size, 0), 0)

    monkeypatch.setattr(fcntl, "ioctl", ficlone)
    saved = saved_of(base, FEW)
    done = restore(saved, base, MACHINE)
    assert (done.method, done.changed_files, done.copied_bytes) == ("reflink", 2, 0)
    (base / DATA / "a").write_bytes(b"longer" * 5000)
    assert restore(saved, base, MACHINE).changed_files == 1
    assert read_digests(base / DATA) == read_digests(base / ORIGINAL)
    names = {DATA, ORIGINAL, prepared_data.MANIFEST, prepared_data.STATE}
    assert {path.name for path in base.iterdir()} == names


@pytest.mark.usefixtures("no_reflink")
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


@pytest.mark.parametrize("step", ["run", "difference"])
def test_a_restoration_that_was_cut_short_is_repeated(
    base: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    saved = saved_of(base, FEW)
    restore(saved, base, MACHINE)
    owner: object = TreeRestore if step == "run" else prepared_data

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            restore(saved, base, MACHINE)
    assert restore(saved, base, MACHINE).changed_files == 2


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

    def sync_and_spoil(path: Path) -> None:
        sync_file_system(path)
        spoil(base / DATA)

    monkeypatch.setattr(prepared_data, "sync_file_system", sync_and_spoil)
    with pytest.raises(HostError, match=says):
        restore(saved, base, MACHINE)


@pytest.mark.usefixtures("no_reflink")
def test_a_content_that_is_not_the_originals_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = saved_of(base, FEW)

    def flip_a_byte(path: Path) -> None:
        sync_file_system(path)
        file = base / DATA / "a"
        times = file.stat()
        file.write_bytes(b"n" + file.read_bytes()[1:])
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    monkeypatch.setattr(prepared_data, "sync_file_system", flip_a_byte)
    with pytest.raises(HostError, match="a has another content"):
        restore(saved, base, MACHINE)


def test_an_original_that_was_changed_is_refused(base: Path) -> None:
    saved = saved_of(base, FEW)
    change_content(base / ORIGINAL / "a", "overwrite", 1, b"n")
    with pytest.raises(HostError, match="original was changed: a"):
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

    monkeypatch.setattr(prepared_data, "require_room", full)
    with pytest.raises(HostError, match="a copy does not fit"):
        restore(saved, base, MACHINE)
    assert needed == [305_000]
    assert not (base / DATA).exists()
