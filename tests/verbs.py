"""All verbs of the command line, read from cyclopts."""

from __future__ import annotations

from collections.abc import Iterator

from cyclopts import App

from pagecage.cli.main import app


def verbs(of: App = app, before: str = "") -> Iterator[tuple[str, App]]:
    """Yield each verb by its words ("host up") with its app. A verb precedes its nested verbs."""
    for name in of:
        if not name.startswith("-"):
            words = f"{before} {name}".strip()
            yield words, of[name]
            yield from verbs(of[name], words)


VERBS = dict(verbs())
