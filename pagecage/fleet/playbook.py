"""The playbook of fleet runs: what it is told, and its tags `preflight`, `run` and `stop`."""

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

_KIT = "kit"
"""The file beside the agent by which a host knows what it has."""


@dataclass(frozen=True)
class RoundRequest:
    """What one host is to do in one round (ansible/roles/campaign/README.md): files are the controller's."""

    run_id: str
    round: int
    request: str
    stream: str


@dataclass(frozen=True)
class FleetPlaybook:
    """Where fleet runs play: the checkout, the inventory, the archive with agent and workloads, and who takes part."""

    project_dir: Path
    inventory: Path
    scratch: Path
    archive: Path
    archive_sha256: str
    words: tuple[str, ...] = field(default=())

    def playbook(self, tag: str, hosts: Iterable[str], **told: object) -> Playbook:
        """fleet.yml limited to these hosts, with its variables in a file of the scratch folder."""
        settings = {
            "campaign_package": str(self.archive), "campaign_package_sha256": self.archive_sha256,
            **told,
        }  # fmt: skip
        scratch = self.scratch / tag
        scratch.mkdir(parents=True, exist_ok=True)
        variables = scratch / "variables.json"
        variables.write_text(json.dumps(settings))
        words = ("--tags", tag, "--limit", ",".join(hosts), "--extra-vars", f"@{variables}", *self.words)
        return Playbook(self.project_dir, "fleet.yml", self.inventory, scratch, words)

    def look(self, hosts: Iterable[str], left_working: Iterable[str]) -> PlaybookRun:
        """Ask hosts what they are; those `left_working` may be busy with an earlier round of ours."""
        return PlaybookRun(self.playbook("preflight", hosts, campaign_left_working=list(left_working)), apart=True)

    def begin(self, tag: str, orders: Mapping[str, RoundRequest]) -> PlaybookRun:
        """Have hosts `run` what they are ordered, or `stop` it; apart from our terminal."""
        told = {host: asdict(order) for host, order in orders.items()}
        return PlaybookRun(self.playbook(tag, orders, campaign_requests=told), apart=True)


def make_stage(project_dir: Path, kit: AgentPackage, scratch: Path, inventory: Path | None = None) -> FleetPlaybook:
    """The stage of a checkout, with the kit packed into one archive whose name is its hash."""
    content = _archive(kit)
    sha256 = hashlib.sha256(content).hexdigest()
    scratch.mkdir(parents=True, exist_ok=True)
    archive = scratch / f"kit-{sha256[:16]}.tar"
    if not archive.exists():
        aside = archive.with_suffix(".part")
        aside.write_bytes(_with_mark(content, sha256))
        aside.replace(archive)
    return FleetPlaybook(project_dir, inventory or inventory_dir(project_dir), scratch, archive, sha256)


def _archive(kit: AgentPackage) -> bytes:
    """Agent and workloads as tar members; equal files make equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, name in [
            (kit.agent, kit.agent.name),
            *((program, f"bin/{program.name}") for program in kit.programs),
        ]:
            _add(tar, name, path.read_bytes())
    return out.getvalue()


def _with_mark(content: bytes, sha256: str) -> bytes:
    """The archive with a last member that holds its hash: unpacked last, it tells that all of it is there."""
    out = io.BytesIO(content)
    with tarfile.open(fileobj=out, mode="a") as tar:
        _add(tar, _KIT, f"{sha256}\n".encode())
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o755
    tar.addfile(member, io.BytesIO(content))


def check_names(hosts: Iterable[FleetHost]) -> None:
    """Refuse a host whose name cannot be a folder's."""
    for host in hosts:
        if not host.name.replace("-", "").replace(".", "").replace("_", "").isalnum() or host.name.startswith("."):
            raise PagecageError(
                f"{host.name!r} cannot be the name of a run's folder",
                "give the host a plain name in the inventory, and its address in ansible_host",
            )
