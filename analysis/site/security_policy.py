"""Content-Security-Policy of the site: no script runs but the theme's and the site's own, by hash.

Browsers check the hash of a script in a file of its own only if a server sends it. The scripts are
therefore put into the pages, which also work from files.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_SOURCE = re.compile(r"""\ssrc="([^"?]+)(?:\?[^"]*)?"\s*""")
_THEME_PAGES = ("genindex.html", "search.html")
"""Pages without any text of a run: each script in them belongs to the theme."""
_HEAD = re.compile(r"<meta charset=[^>]*>", re.IGNORECASE)
_REPORTS = "runs"
"""Folder of the reports on one page, which have a policy of their own."""


def protect(site: Path) -> None:
    """Put the theme's scripts into every page, and a policy that allows these alone.

    Raises ValueError for a page in which the policy has no place.
    """
    trusted = {
        text for name in _THEME_PAGES for text in _scripts(site, (site / name).read_text(), site)
    }
    for path in sorted(site.rglob("*.html")):
        if path.relative_to(site).parts[0] != _REPORTS:
            path.write_text(_protected(site, path, trusted))


def _scripts(site: Path, page: str, folder: Path) -> Iterable[str]:
    return (_text(site, folder, *match.groups()) for match in _SCRIPT.finditer(page))


def _text(site: Path, folder: Path, attributes: str, inline: str) -> str:
    """Return a script's text; empty for one that is not in the site."""
    source = _SOURCE.search(attributes)
    if source is None:
        return inline
    path = (folder / source[1]).resolve()
    return path.read_text() if path.is_relative_to(site.resolve()) and path.is_file() else ""


def _protected(site: Path, path: Path, trusted: set[str]) -> str:
    page = path.read_text()
    texts = [text for text in _scripts(site, page, path.parent) if text in trusted]

    def inlined(match: re.Match[str]) -> str:
        text = _text(site, path.parent, *match.groups())
        return f"<script>{text}</script>" if text in trusted else match[0]

    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(texts)}">'
    page, count = _HEAD.subn(lambda match: match[0] + meta, _SCRIPT.sub(inlined, page), count=1)
    if count != 1:
        raise ValueError(f"{path} has no head")
    return page


def policy(scripts: Iterable[str]) -> str:
    """Return a policy that allows these scripts, and styles, images and fonts of the site."""
    hashes = sorted({f"'sha256-{_digest(script)}'" for script in scripts})
    return (
        f"default-src 'none'; script-src {' '.join(hashes) or repr('none')};"
        " style-src 'self' file: 'unsafe-inline'; img-src 'self' file: data:;"
        " connect-src 'self'; form-action 'self' file:; base-uri 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
