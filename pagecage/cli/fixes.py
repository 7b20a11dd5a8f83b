"""Fixes of errors, as commands of this installation.

Most of pagecage names targets of make, which only a checkout has.
"""

from __future__ import annotations

import re

from pagecage.checkout import IS_INSTALLED

_WITHOUT_MAKE = (
    (r"make setup HOST=(\w+)", r"pagecage host setup \1"),
    (r"make setup", "pagecage host setup"),
    (r"make build", "install pagecage again, from a wheel"),
    (r"make provision HOST=", "pagecage host provision "),
    (r"make provision", "pagecage host provision"),
    (r"make experiment NAME=(\S+)", r"pagecage run \1"),
    (r"make publish", "install pagecage[site]"),
    (r"ASK=1 \((--ask-password)\)", r"\1"),
)
"""Patterns of fixes with make, and what replaces them in an installed package."""


def fix_here(fix: str, *, is_installed: bool = IS_INSTALLED) -> str:
    """Return a fix as it reads for this installation."""
    if is_installed:
        for pattern, replacement in _WITHOUT_MAKE:
            fix = re.sub(pattern, replacement, fix)
    return fix
