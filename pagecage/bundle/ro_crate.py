"""`ro-crate-metadata.json`: the description of a bundle for catalogues of research data.

RO-Crate 1.1 with the profile Process Run Crate: the run is an action of a program, with its inputs
and outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

NAME = "ro-crate-metadata.json"
_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_PROFILES = ("https://w3id.org/ro/crate/1.1", "https://w3id.org/ro/wfrun/process/0.5")
_FORMATS = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".ipynb": "application/x-ipynb+json",
    ".log": "text/plain",
    ".fio": "text/plain",
}
Entity = dict[str, Any]


def crate(
    plan: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    files: Mapping[str, tuple[int, str]],
) -> str:
    """Return the metadata as JSON text. The same run always gives the same text.

    `files` maps paths to sizes in bytes and SHA-256 hashes.
    """
    started, ended = _span(records)
    graph = [
        {
            "@id": NAME,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": _PROFILES[0]},
        },
        _root(plan, files, ended or started),
        _program(plan),
        _action(plan, started, ended),
        *(_file(path, *files[path]) for path in sorted(files)),
    ]
    return json.dumps({"@context": _CONTEXT, "@graph": graph}, indent=1, sort_keys=True) + "\n"


def _span(records: Sequence[Mapping[str, Any]]) -> tuple[str | None, str | None]:
    """Return the start of the first trial and the end of the last one, by the host's clock."""
    times = [
        (phase["start_wall_seconds"], phase["start_wall_seconds"] + phase["seconds"])
        for record in records
        for phase in record.get("phases", ())
    ]
    if not times:
        return None, None
    return _iso_time(min(start for start, _ in times)), _iso_time(max(end for _, end in times))


def _iso_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _root(plan: Mapping[str, Any], files: Iterable[str], published: str | None) -> Entity:
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{plan['experiment']}: {plan['run_id']}",
        "description": plan["definition"]["question"],
        "datePublished": published or plan["run_id"][:8],
        "conformsTo": {"@id": _PROFILES[1]},
        "license": "determined by the person who made the run",
        "hasPart": [{"@id": path} for path in sorted(files)],
        "mentions": {"@id": "#run"},
    }


def _program(plan: Mapping[str, Any]) -> Entity:
    harness = plan.get("harness") or {}
    return {
        "@id": "#pagecage",
        "@type": "SoftwareApplication",
        "name": "pagecage",
        "version": harness.get("version"),
        "softwareVersion": harness.get("git_revision"),
    }


def _action(plan: Mapping[str, Any], started: str | None, ended: str | None) -> Entity:
    times = {"startTime": started, "endTime": ended}
    return {
        "@id": "#run",
        "@type": "CreateAction",
        "name": plan["command"],
        "instrument": {"@id": "#pagecage"},
        "object": {"@id": "plan.json"},
        "result": {"@id": "records.jsonl"},
        **{name: time for name, time in times.items() if time},
    }


def _file(path: str, size_bytes: int, sha256: str) -> Entity:
    suffix = path[path.rfind(".") :]
    return {
        "@id": path,
        "@type": "File",
        "contentSize": str(size_bytes),
        "sha256": sha256,
        "encodingFormat": _FORMATS.get(suffix, "application/octet-stream"),
    }
