"""Packages of the distribution that an experiment's program needs on a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_INSTALLERS = {"debian": "apt-get", "redhat": "dnf"}
FAMILIES = tuple(_INSTALLERS)
"""Families of distributions whose package manager can be asked."""


@dataclass(frozen=True)
class Package:
    """A package: its name on Debian, and on Red Hat's distributions, None if they have none."""

    debian: str
    redhat: str | None

    def name_on(self, family: str | None) -> str | None:
        """Return the name on a family of distributions, or None if it has no such package."""
        return {"debian": self.debian, "redhat": self.redhat}.get(family or "")


def packages_from_json(rows: Sequence[Mapping[str, Any]]) -> tuple[Package, ...]:
    """Return the packages of JSON data."""
    return tuple(Package(**row) for row in rows)


def missing_packages(
    facts: Mapping[str, Any], packages: Sequence[Package]
) -> tuple[str, str] | None:
    """Return the reason and the fix if a host lacks packages, else None.

    `facts` come from the agent. On a distribution of no known family the packages are not checked,
    because their names are not known; a missing program is reported all the same.
    """
    found = facts.get("packages") or {}
    family, versions = found.get("family"), found.get("versions", {})
    names = dict.fromkeys(name for package in packages if (name := package.name_on(family)))
    missing = [name for name in names if versions.get(name) is None]
    if not missing:
        return None
    verb = "package {} is" if len(missing) == 1 else "packages {} are"
    reason = f"{verb.format(', '.join(missing))} missing"
    return reason, f"sudo {_INSTALLERS[str(family)]} install {' '.join(missing)}"
