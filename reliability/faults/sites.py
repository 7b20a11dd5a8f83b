"""Scenario `publish`: a site of one run.

What only costs CPU is done once, and a small copy stands for Sphinx.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.bundle.unpack import unpack
from pagecage.process import run as run_process
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

_BUNDLE = ROOT / "tests/fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
_BUILD = """mkdir "$2" && cp -r "$1/." "$2" && touch "$2/.buildinfo" &&
for page in index genindex search; do echo '<meta charset="utf-8">' >"$2/$page.html"; done"""
_COSTLY = {
    "analysis.site": (
        *("site_page", "hosted_scorecard", "open_questions", "answers_report", "scorecard_page"),
        *("index", "downloads", "execute", "execute_article"),
    ),
}
_DONE: dict[str, Any] = {}


def prepare(root: Path) -> None:
    """Unpack a run, write some documents, and publish once, so that the costly parts are done."""
    for folder in ("tmp", "runs", "docs/decisions"):
        (root / folder).mkdir(parents=True)
    for name in ("docs/HOSTS.md", "docs/decisions/0001-first.md"):
        (root / name).write_text("# A document\n\nWith a [link](README.md).\n")
    (root / "experiments").symlink_to(ROOT / "experiments")
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


def start(root: Path) -> int:
    """Publish the run, in place of an older site."""
    stay_in(root)
    replace_everywhere("app", lambda *_, **__: _publish(root, root / "site"))
    return pagecage(root, "publish")


def site(root: Path) -> dict[str, str] | None:
    """Return the hashes of the site's files; None without a site."""
    return hashes_of(root, "site")


def wrong(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("site", before, site(root), expected)


PUBLISH = Scenario(
    *("publish", prepare, start, start, site, site, wrong, own_role),
    extra_files=(r"log(/.*)?", r"tmp/[a-z0-9_N]+", "once.*"),
)
