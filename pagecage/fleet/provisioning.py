"""Provisioning of a fleet: its inventory, the playbook and its outcome."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pagecage.ansible import (
    FIX,
    HostResult,
    Playbook,
    PlaybookRun,
    TaskEvent,
    inventory_of,
    run_to_end,
)
from pagecage.checkout import TOP
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.agent_package import AgentPackage, make_agent_package
from pagecage.hosts.host import Progress
from pagecage.hosts.vm import guest
from pagecage.model.json_codec import HOST, JsonView, is_identifier
from pagecage.model.trial import Package
from pagecage.whole_files import write_whole

_IMPLIED = ("all", "ungrouped", "_meta")


@dataclass(frozen=True)
class FleetHost:
    """A host of an inventory: name, address (`ansible_host`, else the name), and variables."""

    name: str
    address: str
    variables: JsonView


def inventory_dir(project_dir: Path = TOP) -> Path:
    return project_dir / "ansible" / "inventory"


def groups(project_dir: Path = TOP) -> Mapping[str, tuple[FleetHost, ...]]:
    """Return every group, also empty ones, with its hosts and its child groups' hosts, in order."""
    listed = inventory_of(project_dir, inventory_dir(project_dir))
    variables = listed.get("_meta", {}).get("hostvars", {})

    def hosts_of(group: str) -> dict[str, FleetHost]:
        found = {}
        for name in listed.get(group, {}).get("hosts", []):
            own = variables.get(name, {})
            found[name] = FleetHost(name, str(own.get("ansible_host", name)), own)
        for child in listed.get(group, {}).get("children", []):
            found |= hosts_of(child)
        return found

    # An empty group is listed only among its parent's children.
    children = [child for table in listed.values() for child in table.get("children", [])]
    names = dict.fromkeys([*children, *listed])
    return {name: tuple(hosts_of(name).values()) for name in names if name not in _IMPLIED}


def find_group(name: str, project_dir: Path = TOP) -> tuple[FleetHost, ...]:
    """Return the hosts of a group, or the single host of that name. Raises PagecageError."""
    by_name = groups(project_dir)
    if name in by_name:
        return by_name[name]
    single = {host.name: host for hosts in by_name.values() for host in hosts}
    if name in single:
        return (single[name],)
    reason = f"no inventory has a group {name!r}"
    raise PagecageError(reason, f"{nearest(name, sorted(by_name))} (docs/HOSTS.md)")


@dataclass(frozen=True)
class RoundRequest:
    """The request to one host for one round (ansible/roles/campaign/README.md)."""

    run_id: str
    round: int
    request: str
    stream: str


@dataclass(frozen=True)
class FleetPlaybook:
    """The playbook of fleet runs. `sums` has a line of sha256sum(1) per file of the archive."""

    project_dir: Path
    inventory: Path
    scratch: Path
    archive: Path
    sums: tuple[str, ...]
    words: tuple[str, ...] = field(default=())

    def playbook(self, tag: str, hosts: Iterable[str], **variables: object) -> Playbook:
        """Return fleet.yml limited to these hosts, with its variables in a file below `scratch`."""
        package = {"campaign_package": str(self.archive), "campaign_package_sums": list(self.sums)}
        scratch = self.scratch / tag
        scratch.mkdir(parents=True, exist_ok=True)
        variables_file = scratch / "variables.json"
        variables_file.write_text(json.dumps({**package, **variables}))
        words = ("--tags", tag, "--limit", ",".join(hosts), "--extra-vars", f"@{variables_file}")
        all_words = (*words, *self.words)
        return Playbook(self.project_dir, "fleet.yml", self.inventory, scratch, all_words)

    def read_facts(self, hosts: Iterable[str], busy: Iterable[str]) -> PlaybookRun:
        """Start reading the facts of hosts. `busy` ones may still run a round of this fleet."""
        playbook = self.playbook("preflight", hosts, campaign_left_working=list(busy))
        return PlaybookRun(playbook, detached=True)

    def begin(self, tag: str, requests: Mapping[str, RoundRequest]) -> PlaybookRun:
        """Start to `run` or `stop` the requests of hosts, detached from the terminal."""
        variables = {host: asdict(request) for host, request in requests.items()}
        return PlaybookRun(self.playbook(tag, requests, campaign_requests=variables), detached=True)


def make_fleet_playbook(
    project_dir: Path, package: AgentPackage, scratch: Path, inventory: Path | None = None
) -> FleetPlaybook:
    """Return the playbook of a checkout, with the package in one archive named by its hash."""
    # The servers of simulated volumes lie beside the workloads, where the agent looks for them.
    paths = (*package.programs, *package.volume_files)
    programs = {f"bin/{path.name}": path.read_bytes() for path in paths}
    files = {package.agent.name: package.agent.read_bytes(), **programs}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    sha256 = hashlib.sha256(out.getvalue()).hexdigest()
    scratch.mkdir(parents=True, exist_ok=True)
    archive = scratch / f"agent-{sha256[:16]}.tar"
    if not archive.exists():
        write_whole(archive, out.getvalue())
    sums = tuple(f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in files.items())
    inventory = inventory or inventory_dir(project_dir)
    return FleetPlaybook(project_dir, inventory, scratch, archive, sums)


def check_names(hosts: Iterable[FleetHost]) -> None:
    for host in hosts:
        if not is_identifier(host.name, HOST):
            raise PagecageError(
                f"the host name {host.name!r} cannot name a run folder",
                "give the host a plain name in the inventory, and set its address in ansible_host",
            )


VM = "vm"
_PASSWORD = ("sudo password", "become password", "password is required")
"""Parts of Ansible's messages when sudo's password is missing or wrong."""


@dataclass(frozen=True)
class ProvisionRequest:
    """A playbook and a group. `device` replaces pagecage_data_device of a single host.

    With `erase` unprovisioning destroys data; `packages` are installed too.
    """

    group: str
    playbook: str
    device: str | None = None
    ask_password: bool = False
    password_file: Path | None = None
    erase: bool = False
    packages: tuple[Package, ...] = ()

    def words(self) -> tuple[str, ...]:
        settings = {
            "pagecage_data_device": self.device,
            "pagecage_erase_data": self.erase or None,
            "base_experiment_packages": [asdict(package) for package in self.packages] or None,
        }
        variables = {name: value for name, value in settings.items() if value is not None}
        words = ["--limit", self.group]
        words += ["--extra-vars", json.dumps(variables)] if variables else []
        if self.password_file is not None:
            words += ["--become-password-file", str(self.password_file)]
        return (*words, *(["--ask-become-pass"] if self.ask_password else []))


def run_playbook(
    request: ProvisionRequest,
    scratch: Path,
    progress: Progress,
    listener: Callable[[TaskEvent], None],
    project_dir: Path = TOP,
) -> Mapping[str, HostResult]:
    """Run the playbook on every host of the group and return the results by host.

    The guest is started if needed. Raises PagecageError for an unknown or empty group, and for one
    device on several hosts; HostError if Ansible could not start.
    """
    hosts = find_group(request.group, project_dir)
    if not hosts and request.group != VM:
        message = f"the group {request.group!r} has no hosts"
        raise PagecageError(message, "name them in ansible/inventory (docs/HOSTS.md)")
    if request.packages and request.group == VM:
        raise PagecageError(
            "the packages of an experiment are part of the guest's image",
            "make setup HOST=vm with the experiment's NAME, without make provision",
        )
    if request.device is not None and len(hosts) > 1:
        raise PagecageError(
            f"--device {request.device} would apply to {len(hosts)} hosts",
            "set pagecage_data_device for each host in ansible/inventory, or name one host",
        )
    words = request.words()
    if request.playbook == "site.yml":
        agent = make_agent_package(project_dir).agent
        words += ("--extra-vars", json.dumps({"agent_file": str(agent)}))
    playbook = Playbook(project_dir, request.playbook, inventory_dir(project_dir), scratch, words)
    if request.group == VM:
        guest.up(progress)
    with guest.connected() if request.group == VM else nullcontext():
        results = run_to_end(playbook, listener)
    by_name = {host.name: host for host in hosts}
    return {name: _with_hint(result, by_name.get(name)) for name, result in results.items()}


def _with_hint(result: HostResult, host: FleetHost | None) -> HostResult:
    """Add a fix to two frequent messages of Ansible: a missing password and an unreachable host."""
    event = result.stopped_by
    if event is None or host is None or FIX in event.message:
        return result
    user, port = (host.variables.get(f"ansible_{name}") for name in ("user", "port"))
    account = f"{user}@{host.address}" if user else host.address
    if any(words in event.message for words in _PASSWORD):
        fix = f"repeat with ASK=1 (--ask-password) and sudo's password for {account}"
        message = f"{event.message}{FIX}{fix}"
    elif event.outcome == "unreachable":
        command = shlex.join(["ssh", *(["-p", str(port)] if port else []), account, "true"])
        fix = f"make `{command}` work without a prompt"
        message = f"the host is unreachable ({event.message}){FIX}{fix}"
    else:
        return result
    return replace(result, stopped_by=replace(event, message=message))
