"""A run packed as one file, with its description as an RO-Crate."""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import os
import platform
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pagecage.bundle.redact import Redactor, names_in
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.json_codec import JsonView, from_line
from pagecage.model.record import read_records, sealed_line
from pagecage.model.record_sections import Row
from pagecage.model.run_files import Document, plan_sha256
from pagecage.version import VERSION
from pagecage.whole_files import write_whole

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


def crate(plan: Document, records: Sequence[Row], files: Mapping[str, tuple[int, str]]) -> str:
    """Return the metadata as JSON text. `files` maps paths to sizes in bytes and SHA-256 hashes."""
    phases = [phase for record in records for phase in record.get("phases", ())]
    begins = [phase["start_wall_seconds"] for phase in phases]
    ends = [phase["start_wall_seconds"] + phase["seconds"] for phase in phases]
    times = {"startTime": _iso_time(min(begins)), "endTime": _iso_time(max(ends))} if phases else {}
    harness = plan.get("harness") or {}
    versions = {"version": harness.get("version"), "softwareVersion": harness.get("git_revision")}
    graph = [
        _entity(NAME, "CreativeWork", about={"@id": "./"}, conformsTo={"@id": _PROFILES[0]}),
        _entity(
            "./",
            "Dataset",
            name=f"{plan['experiment']}: {plan['run_id']}",
            description=plan["definition"]["question"],
            datePublished=times.get("endTime") or plan["run_id"][:8],
            conformsTo={"@id": _PROFILES[1]},
            license="determined by the person who made the run",
            hasPart=[{"@id": path} for path in sorted(files)],
            mentions={"@id": "#run"},
        ),
        _entity("#pagecage", "SoftwareApplication", name="pagecage", **versions),
        _entity(
            "#run",
            "CreateAction",
            name=plan["command"],
            instrument={"@id": "#pagecage"},
            object={"@id": "plan.json"},
            result={"@id": "records.jsonl"},
            **times,
        ),
    ]
    for path, (size_bytes, sha256) in sorted(files.items()):
        kind = _FORMATS.get(path[path.rfind(".") :], "application/octet-stream")
        size = str(size_bytes)
        graph.append(_entity(path, "File", contentSize=size, sha256=sha256, encodingFormat=kind))
    return json.dumps({"@context": _CONTEXT, "@graph": graph}, indent=1, sort_keys=True) + "\n"


def _entity(id_: str, kind: str, **properties: Any) -> Row:
    return {"@id": id_, "@type": kind, **properties}


def _iso_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


Manifest = JsonView
"""What a bundle holds: bundle.json (docs/FORMAT.md)."""
BUNDLE_VERSION = 1
MANIFEST = "bundle.json"
SUFFIX = ".pagecage.zip"
REQUIRED = ("plan.json", "records.jsonl")
REPORT = "report.ipynb"
"""Contained in older bundles, and never used: a report is made from the data."""
_NAME = r"[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]*"
_ALLOWED = re.compile(
    rf"plan\.json|records\.jsonl|{re.escape(REPORT)}|{re.escape(NAME)}|facts/{_NAME}\.json|trials/{_NAME}/{_NAME}"
)


def is_allowed(path: str) -> bool:
    """Return whether a bundle may contain this path; none leads out of its folder."""
    return _ALLOWED.fullmatch(path) is not None


_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can store."""
_MODE = 0o100644 << 16
_BINARY = "it is not text, so it cannot be redacted"


def pack(
    run: Path,
    target: Path,
    *,
    redacted: bool = True,
    keep: Collection[str] = (),
    leave_out: Collection[str] = (),
) -> Manifest:
    """Write the archive and return its manifest (docs/FORMAT.md).

    `keep` names the KINDS of values that are not replaced. `leave_out` has patterns of traces that
    the archive does not contain (fnmatch(3)), as file name or as path below the run. Raises
    PagecageError if `run` is not a run.
    """
    if target.exists():
        raise PagecageError(f"{target} already exists", f"rm {target}, or give another --out")
    plan = _plan(run)
    contents, left_out = _contents(run, leave_out)
    redactor = None
    if redacted:
        texts = {p: text for p, data in contents.items() if (text := _decode(data)) is not None}
        left_out += [{"path": path, "why": _BINARY} for path in contents.keys() - texts.keys()]
        contents, redactor = _redact(texts, plan, keep)
    files = {path: _size_and_hash(data) for path, data in contents.items()}
    contents[NAME] = _metadata(contents, files)
    files[NAME] = _size_and_hash(contents[NAME])
    manifest = {
        "bundle_version": BUNDLE_VERSION,
        "run_id": json.loads(contents["plan.json"])["run_id"],
        "pagecage": VERSION,
        "is_redacted": redacted,
        "redactions": redactor.counts() if redactor else [],
        "kept": dict(sorted(redactor.kept.items())) if redactor else {},
        "left_out": sorted(left_out, key=lambda entry: entry["path"]),
        "files": [{"path": p, "bytes": n, "sha256": h} for p, (n, h) in sorted(files.items())],
    }
    _write(target, {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode(), **contents})
    return manifest


def _size_and_hash(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


def _metadata(contents: Mapping[str, bytes], files: Mapping[str, tuple[int, str]]) -> bytes:
    lines = contents["records.jsonl"].splitlines()
    records = [json.loads(line) for line in lines if _is_json(line)]
    return crate(json.loads(contents["plan.json"]), records, files).encode()


def _plan(run: Path) -> Document:
    try:
        plan = json.loads((run / "plan.json").read_bytes())
        for key in ("run_id", "host", "experiment", "definition", "command"):
            plan[key]
        plan["definition"]["question"]
    except UNREADABLE as error:
        reason = f"{run}/plan.json cannot be read: {why_unreadable(error)}"
        raise PagecageError(reason, "ls runs/") from None
    if not list(read_records(run / "records.jsonl")):
        hint = f"pagecage run {plan['experiment']} --resume"
        raise PagecageError(f"{run} has no record yet", hint)
    return dict(plan)


def _contents(
    run: Path, leave_out: Collection[str]
) -> tuple[dict[str, bytes], list[dict[str, str]]]:
    """Return the files of the run that a bundle may contain, and the others but for links."""
    found, left_out = {}, []
    paths = (Path(folder, name) for folder, _, names in os.walk(run) for name in names)
    for path in sorted(path for path in paths if path.is_file() and not path.is_symlink()):
        name = path.relative_to(run).as_posix()
        if name in (MANIFEST, NAME, REPORT, "report.html"):
            continue
        is_trace = name.startswith("trials/")
        if is_trace and any(fnmatchcase(one, p) for p in leave_out for one in (name, path.name)):
            left_out.append({"path": name, "why": "the bundle was made without it"})
        elif is_allowed(name):
            found[name] = path.read_bytes()
        else:
            left_out.append({"path": name, "why": "it is not a file of a run"})
    if missing := [name for name in REQUIRED if name not in found]:
        raise PagecageError(f"{run} has no {missing[0]}", "ls runs/")
    # Files that the bundle of the run had left out would otherwise look like removed evidence.
    with suppress(*UNREADABLE):
        entries = from_line((run / MANIFEST).read_bytes())["left_out"]
        left_out += [{"path": str(one["path"]), "why": str(one["why"])} for one in entries]
    return found, left_out


def _decode(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _redact(
    texts: Mapping[str, str], plan: Document, keep: Collection[str]
) -> tuple[dict[str, bytes], Redactor]:
    user = ""
    with suppress(KeyError, OSError):  # the process's user may have no name
        user = getpass.getuser()
    names = names_in(texts.values(), plan, {"hosts": {platform.node()}, "users": {user}})
    redactor = Redactor(names, is_replay=plan.get("replay") is not None, keep=keep)
    contents = {
        "/".join(map(redactor.text, path.split("/"))): _redacted(redactor, path, text).encode()
        for path, text in texts.items()
    }
    sealed = json.loads(contents["plan.json"])
    if (written := sealed.get("plan_sha256")) and written != (digest := plan_sha256(sealed)):
        for name in ("plan.json", "records.jsonl"):
            contents[name] = contents[name].replace(written.encode(), digest.encode())
    contents["records.jsonl"] = b"".join(
        (sealed_line(json.loads(line)) if _is_json(line) and b'"record_sha256"' in line else line)
        + b"\n"
        for line in contents["records.jsonl"].splitlines()
    )
    return contents, redactor


def _redacted(redactor: Redactor, path: str, text: str) -> str:
    """Return a file of the run. Traces keep their layout; plan, facts and records are data."""
    if path == "records.jsonl":
        return "".join(f"{_redacted_line(redactor, line)}\n" for line in text.splitlines())
    if path == "plan.json" or path.startswith("facts/"):
        data = json.loads(text)
        told = redactor.value(data)
        return text if told == data else json.dumps(told, indent=1) + "\n"
    return redactor.text(text)


def _redacted_line(redactor: Redactor, line: str) -> str:
    """Return a record; of a line that is cut off, only its known words are kept."""
    try:
        data = json.loads(line)
    except ValueError:
        return redactor.text(line)
    told = redactor.value(data)
    return line if told == data else json.dumps(told, separators=(",", ":"))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in [MANIFEST, *sorted(contents.keys() - {MANIFEST})]:
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = _MODE
            archive.writestr(entry, contents[path])
    try:
        write_whole(target, packed.getvalue())
    except OSError as error:
        reason = f"{target} cannot be written: {error.strerror}"
        raise PagecageError(reason, "give another --out") from None
