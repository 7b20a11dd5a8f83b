"""Scenario `image`: the making of the guest's image, with small programs instead of Debian's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagecage.errors import EXIT_OK
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.hosts.vm.image import GuestImage, ImageRecipe, read_contents
from pagecage.hosts.vm.image_build import ensure_image
from reliability.faults.scenario import (
    Scenario,
    own_role,
    pagecage,
    replace_everywhere,
    stay_in,
    wrong_result,
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


def prepare(root: Path) -> None:
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


def wrong(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("image", before, now := image(root), expected)
    if now == expected and read_contents(
        GuestImage(root / "cache/pagecage/vm/images" / _RECIPE.key)
    ).lacks(()):
        yield "the image lacks packages"


IMAGE = Scenario(
    *("image", prepare, build, build, image, image, wrong, own_role),
    extra_files=(r"log(/.*)?", r"tmp/[a-z0-9_N]+"),
)
