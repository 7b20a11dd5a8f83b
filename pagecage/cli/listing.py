"""`pagecage list`: the experiments."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.checkout import OWN, PROJECT, TOP
from pagecage.cli.output import Json
from pagecage.errors import EXIT_OK
from pagecage.planning.summary import ExperimentSummary, summary_of
from pagecage.terminal import notify
from pagecage.units import format_seconds

_EXPERIMENTS = "experiments"


def list_experiments(*, as_json: Json = False) -> int:
    """List the experiments with their questions."""
    own = OWN if OWN != TOP else None
    custom = _stems(own / _EXPERIMENTS) if own else []
    names = [*custom, *(one for one in _stems(TOP / _EXPERIMENTS) if one not in custom)]
    is_project = custom or (own and _stems(own / "cgroups"))
    found = (None if is_project else _stored(names)) or _checked(names)
    rows = [_summary_row(name, found[name], name in custom) for name in names]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        origin = f"{row['origin']:<8} " if custom else ""
        print(
            f"{origin}{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14}"
            f" {row['question']}"
        )
    if PROJECT not in (None, TOP) and not custom:
        notify(f"{PROJECT} defines no experiments\n  fix: pagecage init -- COMMAND makes one")
    return EXIT_OK


def _stems(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def _stored(names: list[str]) -> Mapping[str, ExperimentSummary] | None:
    """Return the summaries of pagecage's own experiments; None if one cannot be read.

    They are not checked: tests do so, and the checks take longer than everything else here.
    """
    files = {name: TOP / _EXPERIMENTS / f"{name}.toml" for name in names}
    try:
        return {name: summary_of(tomllib.loads(path.read_text())) for name, path in files.items()}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None


def _checked(names: list[str]) -> Mapping[str, ExperimentSummary]:
    """Return the summaries of experiments. Raises PagecageError for one that is not valid."""
    from pagecage.planning.options import definitions

    defined = definitions()
    return {name: summary_of(defined.experiment(name).definition) for name in names}


def _summary_row(name: str, one: ExperimentSummary, is_custom: bool) -> dict[str, Any]:
    return {
        "name": name,
        "origin": "project" if is_custom else "pagecage",
        "question": one.question,
        "treatments": one.treatments,
        "factors": one.factors,
        "about": f"about {format_seconds(one.expected_seconds)}",
        "expected_seconds": one.expected_seconds,
    }
