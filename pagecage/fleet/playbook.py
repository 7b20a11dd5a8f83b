"""The playbook of fleet runs, its variables, and its tags `preflight`, `run` and `stop`."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pagecage.ansible import Playbook, PlaybookRun
from pagecage.errors import PagecageError
from pagecage.fleet.inventory import FleetHost, inventory_dir
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.identifiers import HOST, is_identifier
from pagecage.whole_files import write_whole


@dataclass(frozen=True)
class RoundRequest:
    """The request to one host for one round; `request` and `stream` are files of the controller.

    See ansible/roles/campaign/README.md.
    """

    run_id: str
    round: int
    request: str
    stream: str


@dataclass(frozen=True)
class FleetPlaybook:
    """The playbook of fleet runs with its checkout, its inventory and the agent package.

    `sums` has a line of sha256sum(1) for each file of the archive.
    """

    project_dir: Path
    inventory: Path
    scratch: Path
    archive: Path
    sums: tuple[str, ...]
    words: tuple[str, ...] = field(default=())

    def playbook(self, tag: str, hosts: Iterable[str], **variables: object) -> Playbook:
        """Return fleet.yml limited to these hosts, with its variables in a file below `scratch`."""
        package = {
            "campaign_package": str(self.archive),
            "campaign_package_sums": list(self.sums),
        }
        scratch = self.scratch / tag
        scratch.mkdir(parents=True, exist_ok=True)
        variables_file = scratch / "variables.json"
        variables_file.write_text(json.dumps({**package, **variables}))
        words = (
            "--tags",
            tag,
            "--limit",
            ",".join(hosts),
            "--extra-vars",
            f"@{variables_file}",
            *self.words,
        )
        return Playbook(self.project_dir, "fleet.yml", self.inventory, scratch, words)

    def read_facts(self, hosts: Iterable[str], busy: Iterable[str]) -> PlaybookRun:
        """Start reading the facts of hosts. `busy` ones may still run a round of this fleet."""
        return PlaybookRun(
            self.playbook("preflight", hosts, campaign_left_working=list(busy)), detached=True
        )

    def begin(self, tag: str, requests: Mapping[str, RoundRequest]) -> PlaybookRun:
        """Start to `run` or `stop` the requests of hosts, detached from the terminal."""
        variables = {host: asdict(request) for host, request in requests.items()}
        return PlaybookRun(self.playbook(tag, requests, campaign_requests=variables), detached=True)


def make_fleet_playbook(
    project_dir: Path, package: AgentPackage, scratch: Path, inventory: Path | None = None
) -> FleetPlaybook:
    """Return the playbook of a checkout, with the package in one archive named by its hash."""
    files = _files(package)
    content = _archive(files)
    sha256 = hashlib.sha256(content).hexdigest()
    scratch.mkdir(parents=True, exist_ok=True)
    archive = scratch / f"agent-{sha256[:16]}.tar"
    if not archive.exists():
        write_whole(archive, content)
    sums = tuple(f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in files.items())
    return FleetPlaybook(
        project_dir, inventory or inventory_dir(project_dir), scratch, archive, sums
    )


def _files(package: AgentPackage) -> dict[str, bytes]:
    """Return the contents by path in the spool.

    The servers of simulated volumes lie beside the workloads, where the agent looks for them.
    """
    paths = (*package.programs, *package.volume_files)
    programs = {f"bin/{path.name}": path.read_bytes() for path in paths}
    return {package.agent.name: package.agent.read_bytes(), **programs}


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive; equal files give equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            _add(tar, name, content)
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o755
    tar.addfile(member, io.BytesIO(content))


def check_names(hosts: Iterable[FleetHost]) -> None:
    """Raise PagecageError for a host whose name cannot be that of a folder."""
    for host in hosts:
        if not is_identifier(host.name, HOST):
            raise PagecageError(
                f"the host name {host.name!r} cannot name a run folder",
                "give the host a plain name in the inventory, and set its address in ansible_host",
            )
