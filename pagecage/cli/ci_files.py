"""The choice of a CI system for `pagecage init --ci`, and its files."""

from __future__ import annotations

from pathlib import Path

from pagecage.checkout import TOP
from pagecage.cli.output import notify
from pagecage.definitions.ci_writer import Build, CiSystem, ci_files
from pagecage.process import find_tool, run

_PIPELINE = ".gitlab-ci.yml"


def new_ci_files(
    given: CiSystem | None, name: str, folder: Path, build: Build | None = None
) -> dict[Path, str]:
    """Return the contents of the files that are missing, by path.

    `given` is None to choose by the remote of the git repository. `build` is what the experiment
    needs before it runs. What the user has to do is printed.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    system = given or _system_of(_git(folder, "remote", "get-url", "origin"))
    repository = Path(top) if top else folder
    inside = folder.resolve().relative_to(repository.resolve()).as_posix()
    texts = ci_files(system, name, inside, TOP, build)
    files = {repository / path: text for path, text in texts.items()}
    _advise(system, given)
    if repository / _PIPELINE in files and (repository / _PIPELINE).exists():
        notify(f"add to the includes of {_PIPELINE}: local: /.gitlab/pagecage-{name}.yml")
    return {path: text for path, text in files.items() if not path.exists()}


def _system_of(remote: str) -> CiSystem:
    """Return the CI system of the server in a git remote, such as git@gitlab.example:a/b.git."""
    address = remote.rpartition("://")[2].rpartition("@")[2]
    server = address.partition("/")[0].partition(":")[0]
    if "github" in server:
        return "github"
    return "gitlab" if "gitlab" in server else "none"


def _git(folder: Path, *words: str) -> str:
    """Return the output of a git command; empty if it fails or there is no git."""
    git = find_tool("git")
    return run([git, "-C", folder, *words], check=False).stdout.strip() if git else ""


def _advise(system: CiSystem, given: CiSystem | None) -> None:
    if system != "none":
        notify("CI installs the wheel that its variable PAGECAGE_WHEEL names; see docs/GATES.md")
    elif given is None:
        notify("no CI file: the git remote is not GitHub's or GitLab's; choose with --ci")
