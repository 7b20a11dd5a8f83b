"""The folder of a fleet run: the request, one run folder per host, and the result of each round."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model import json_codec as codec
from pagecage.model.json_codec import HOST, Json, from_line, require_identifiers
from pagecage.model.plan import Plan
from pagecage.runner.run_folder import RunFolder, new_folder, path_exists, point_latest, run_paths
from pagecage.whole_files import append_line

FLEET_VERSION = 1
DOCUMENT = "fleet.json"
_WRITTEN = {"reason": "because"}
"""Fields of a result, and their keys in rounds.jsonl where these differ."""


@dataclass(frozen=True)
class RoundResult:
    """A round on one host: `done lost refused incomplete interrupted`, and why."""

    host: str
    round: int
    outcome: str
    reason: str
    unix_seconds: float
    seconds: float


@dataclass(frozen=True)
class FleetRequest:
    """The group, the mode (`replicate spread`), and the hosts left out, each with the reason."""

    group: str
    mode: str
    left_out: Mapping[str, str] = field(default_factory=dict)


class FleetFolder:
    """A fleet run in runs/. Like a run folder it is only appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results_path = path / "rounds.jsonl"

    @classmethod
    def create(
        cls, runs: Path, whole: Plan, request: FleetRequest, plans: Mapping[str, Plan]
    ) -> FleetFolder:
        """Create it with a run folder for each host, and point latest-EXPERIMENT@GROUP at it."""
        folder = cls(runs / whole.run_id)
        document = {
            "fleet_version": FLEET_VERSION,
            "run_id": whole.run_id,
            "experiment": whole.document["experiment"],
            **asdict(request),
            "command": whole.document["command"],
            "hosts": {host: plan.sha256 for host, plan in plans.items()},
        }
        with new_folder(folder.path) as part:
            for host, plan in plans.items():
                RunFolder.make(cls(part).host_path(host), plan)
            (part / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n")
        point_latest(runs, f"{document['experiment']}@{request.group}", whole.run_id)
        return folder

    def document(self) -> Json:
        """Return fleet.json. Raises PagecageError if it is unreadable or of a newer format."""
        where = f"{self.path}/{DOCUMENT}"
        names = {"run_id": codec.RUN_ID, "experiment": codec.EXPERIMENT}
        try:
            document: Json = from_line((self.path / DOCUMENT).read_bytes())
            version, hosts = document["fleet_version"], document["hosts"].items()
            is_newer = version > FLEET_VERSION
            require_identifiers(document, names, where)
            for host, digest in hosts:
                require_identifiers({host: digest}, {host: codec.SHA256}, where)
                require_identifiers({"hosts": host}, {"hosts": HOST}, where)
        except UNREADABLE as error:
            reason = f"{where} cannot be read: {why_unreadable(error)}"
            raise PagecageError(reason, "ls runs/") from None
        if is_newer:
            raise PagecageError(f"{where} has format version {version}", "use a newer pagecage")
        return document

    def host_path(self, host: str) -> Path:
        return self.path / "hosts" / host

    def host_folders(self) -> dict[str, RunFolder]:
        return {host: RunFolder(self.host_path(host)) for host in self.document()["hosts"]}

    def unfetched_hosts(self) -> set[str]:
        """Return the hosts with an incomplete stream, whose agents may still be running."""
        return {path.stem for path in (self.path / "streams").glob("*")}

    def add(self, result: RoundResult) -> None:
        line = {_WRITTEN.get(name, name): value for name, value in asdict(result).items()}
        append_line(self._results_path, json.dumps(line).encode())

    def last_results(self) -> dict[str, RoundResult]:
        path, results = self._results_path, dict[str, RoundResult]()
        if not path.exists():
            return results
        read = {written: name for name, written in _WRITTEN.items()}
        with path.open("rb") as file:
            where = f"{self.path.name}/{path.name}"
            for place, line in codec.from_lines(codec.lines_of(file), where, str(path)):
                try:
                    named = {read.get(name, name): value for name, value in line.items()}
                    result = codec.from_json(RoundResult, named)
                    require_identifiers({"host": result.host}, {"host": HOST}, place)
                except (AttributeError, PagecageError):
                    reason = f"{place} is not the result of a round"
                    raise PagecageError(reason, codec.KEYS_HINT) from None
                results[result.host] = result
        return results


def round_result(host: str, number: int, outcome: str, reason: str, began: float) -> RoundResult:
    seconds = round(time.monotonic() - began, 3)
    return RoundResult(host, number, outcome, reason, time.time(), seconds)


def find_fleet(runs: Path, name: str) -> FleetFolder | None:
    """Return a fleet run by its id, its path, or EXPERIMENT@GROUP (the newest), or None."""
    found = (path for path in run_paths(runs, name) if path_exists(path / DOCUMENT))
    return next((FleetFolder(path.resolve()) for path in found), None)
