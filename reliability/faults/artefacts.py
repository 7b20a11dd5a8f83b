"""Scenarios whose result is whole or absent: `bundle`, `render`, `image` and `publish`."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.bundle.pack import pack
from pagecage.bundle.unpack import unpack
from pagecage.errors import EXIT_OK
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.hosts.vm.image import GuestImage, ImageRecipe, read_contents
from pagecage.hosts.vm.image_build import ensure_image
from pagecage.process import run as run_process
from reliability.faults import runs
from reliability.faults.scenario import (
    Scenario,
    hashes_of,
    own_role,
    pagecage,
    replace_everywhere,
    stay_in,
    wrong_result,
)
from tests.tree import ROOT

_ARCHIVE = "out.pagecage.zip"
_FOLDER = "unpacked"


def prepare_bundle(root: Path) -> None:
    runs.prepare_resumed(root)
    folder = runs.newest(root)
    assert folder is not None
    (folder.path / "report.ipynb").write_text("{}")
    (root / "told").unlink()


def bundle(root: Path) -> int:
    runs.arrange(root)
    return pagecage(root, "export", runs.NAME, "--out", _ARCHIVE)


def bundle_again(root: Path) -> int:
    return 0 if (root / _ARCHIVE).exists() else bundle(root)


def archive(root: Path) -> dict[str, str] | None:
    """Return the hash of what has the archive's name, whole or not; None without it."""
    return hashes_of(root, _ARCHIVE)


def wrong_archive(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("archive", before, archive(root), expected)
    if archive(root) == expected and zipfile.ZipFile(root / _ARCHIVE).testzip():
        yield "the archive is damaged"


_EXTRA = (r"log(/.*)?", r"tmp/[a-z0-9_N]+")
BUNDLE = Scenario(
    *("bundle", prepare_bundle, bundle, bundle_again, archive, archive, wrong_archive, own_role),
    extra_files=_EXTRA,
)


def prepare_archive(root: Path) -> None:
    prepare_bundle(root)
    folder = runs.newest(root)
    assert folder is not None
    pack(folder.path, root / _ARCHIVE)


def render(root: Path) -> int:
    runs.arrange(root)
    return pagecage(root, "import", _ARCHIVE, "--out", _FOLDER)


def render_again(root: Path) -> int:
    return 0 if (root / _FOLDER).exists() else render(root)


def unpacked(root: Path) -> dict[str, str] | None:
    """Return the hashes of the unpacked files; None without the folder."""
    return hashes_of(root, _FOLDER)


def wrongly_unpacked(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("unpacked run", before, unpacked(root), expected)


RENDER = Scenario(
    *("render", prepare_archive, render, render_again, unpacked, unpacked, wrongly_unpacked),
    *(own_role,),
    extra_files=_EXTRA,
)


_RECIPE = ImageRecipe("trixie", "amd64", ("systemd",), "true\n", (), "true\n")
_PROGRAMS = {
    "mmdebstrap": 'for last; do :; done; mkdir -p "$last/boot"; echo k >"$last/boot/vmlinuz-1";'
    ' echo i >"$last/boot/initrd.img-1"',
    "mke2fs": 'for last; do :; done; echo disk >"$last"',
    "fakeroot": '"$@"',
    "ssh-keygen": 'for last; do :; done; echo a private key >"$last";'
    ' echo a public key >"$last.pub"',
}
_FILES = ("disk", "kernel", "initrd", "identity", "known_hosts", "contents")


def prepare_image(root: Path) -> None:
    for folder in ("bin", "tmp", "keyrings"):
        (root / folder).mkdir()
    (root / "keyrings/debian-archive-keyring.gpg").touch()
    for name, text in _PROGRAMS.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
        (root / "bin" / name).chmod(0o755)


def build(root: Path) -> int:
    """Make the image, as `pagecage host prepare vm` does under the cache's lock."""
    stay_in(root)
    os.environ["PATH"] = f"{root}/bin:/usr/bin:/bin"
    replace_everywhere("KEYRINGS", root / "keyrings")
    replace_everywhere("BUILD_BYTES", 1)
    replace_everywhere("app", lambda *_, **__: _ensure(root))
    return pagecage(root, "host", "prepare", "vm")


def _ensure(root: Path) -> int:
    cache = GuestCache(root / "cache/pagecage/vm")
    cache.make()
    lock = CacheLock(cache.lock_file)
    lock.acquire()
    try:
        ensure_image(cache, _RECIPE, lambda _: None)
    finally:
        lock.release()
    return EXIT_OK


def image(root: Path) -> dict[str, str] | None:
    """Return the files of an image that has its name; None without one."""
    found = GuestImage(root / "cache/pagecage/vm/images" / _RECIPE.key)
    if not found.directory.exists():
        return None
    paths: list[Path] = [getattr(found, name) for name in _FILES]
    texts = {path.name: path.read_text() if path.exists() else "missing" for path in paths}
    for key in (found.identity, found.known_hosts):  # random, if a real ssh-keygen makes it
        texts[key.name] = "a key" if len(texts[key.name]) > len("missing") else "no key"
    return texts


def wrong_image(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("image", before, now := image(root), expected)
    if now == expected and read_contents(
        GuestImage(root / "cache/pagecage/vm/images" / _RECIPE.key)
    ).lacks(()):
        yield "the image lacks packages"


IMAGE = Scenario(
    *("image", prepare_image, build, build, image, image, wrong_image, own_role),
    extra_files=(r"log(/.*)?", r"tmp/[a-z0-9_N]+"),
)


_BUNDLE = ROOT / "tests/fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
_BUILD = """mkdir "$2" && cp -r "$1/." "$2" && touch "$2/.buildinfo" &&
for page in index genindex search; do echo '<meta charset="utf-8">' >"$2/$page.html"; done"""
_COSTLY = {
    "analysis.site": (
        *("site_page", "open_questions", "scorecard_page", "index", "execute", "execute_article"),
    ),
    "analysis.articles.pages": ("answers_report",),
    "analysis.articles.ratios": ("hosted_scorecard",),
}
_DONE: dict[str, Any] = {}


def prepare_site(root: Path) -> None:
    """Unpack a run, write some documents, and publish once, so that the costly parts are done."""
    for folder in ("tmp", "runs", "docs/decisions"):
        (root / folder).mkdir(parents=True)
    for name in ("docs/HOSTS.md", "docs/decisions/0001-first.md"):
        (root / name).write_text("# A document\n\nWith a [link](README.md).\n")
    for name in ("experiments", "docs/schema"):
        (root / name).symlink_to(ROOT / name)
    unpack(_BUNDLE, root / "runs/one")
    _do_once()
    from analysis.site import load_run  # type: ignore[attr-defined]

    _DONE["run"] = load_run(root / "runs/one")
    _publish(root, root / "once")


def _do_once() -> None:
    import importlib

    from analysis import site

    for title, names in _COSTLY.items():
        module = importlib.import_module(title)
        for name in names:
            setattr(module, name, _once(f"{title}.{name}", getattr(module, name)))
    site.run_process = _sphinx  # type: ignore[attr-defined, assignment]
    site.render = _rendered  # type: ignore[attr-defined, assignment]


def _once(name: str, real: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        if name not in _DONE:
            _DONE[name] = real(*given, **named)
        return _DONE[name]

    return call


def _rendered(path: Path) -> None:
    from analysis.views.render import NAME, PAGE, render

    if "pages" not in _DONE:
        render(path)
        _DONE["pages"] = {name: (path / name).read_bytes() for name in (NAME, PAGE)}
    for name, data in _DONE["pages"].items():
        (path / name).write_bytes(data)


def _sphinx(argv: list[str | Path], **_: Any) -> Any:
    """Stand in for Sphinx, which takes seconds: its last two arguments are source and result."""
    return run_process(["sh", "-c", _BUILD, "sh", *argv[-2:]], check=False)


def _publish(root: Path, out: Path) -> int:
    from analysis.site import publish

    publish(root, nullcontext([replace(_DONE["run"], path=root / "runs/one")]), (), out)
    return 0


def publish_site(root: Path) -> int:
    """Publish the run, in place of an older site."""
    stay_in(root)
    replace_everywhere("app", lambda *_, **__: _publish(root, root / "site"))
    return pagecage(root, "publish")


def site(root: Path) -> dict[str, str] | None:
    """Return the hashes of the site's files; None without a site."""
    return hashes_of(root, "site")


def wrong_site(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("site", before, site(root), expected)


PUBLISH = Scenario(
    *("publish", prepare_site, publish_site, publish_site, site, site, wrong_site, own_role),
    extra_files=(r"log(/.*)?", r"tmp/[a-z0-9_N]+", "once.*"),
)
