"""Publishing of runs as a static site that works from files and from any server.

Pages are made from the data of redacted bundles alone. A page loads nothing from other hosts, and
runs no script but the theme's.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat

from analysis.claims.answers import open_questions
from analysis.claims.hosts import hosted_scorecard, run_by_experiment
from analysis.data.load import Run, load_run
from analysis.pages.answers import answers_report
from analysis.site import pages
from analysis.site.notebook import site_page
from analysis.site.security_policy import protect
from analysis.views.render import HERE as ANALYSIS
from analysis.views.render import NAME, PAGE, render
from pagecage.bundle.layout import SUFFIX
from pagecage.bundle.pack import pack
from pagecage.bundle.unpack import unpack
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.process import run as run_process
from pagecage.report.export import to_markdown
from pagecage.whole_files import scratch_folder, sync_folder

_THEME = Path(__file__).resolve().parent / "theme"
_BUILD_SECONDS = 900.0


@dataclass(frozen=True)
class Site:
    """The project's folder, the runs that get a page by experiment, and all stored runs."""

    top: Path
    runs: Mapping[str, Run]
    stored: Sequence[Run]


def publish(top: Path, stored: Sequence[Run], named: Sequence[Path], out: Path) -> Path:
    """Build the site in `out`, completely or not at all; return the path of its first page.

    Each run is redacted first, and a report is made of what is left. An existing site is replaced
    when the new one is complete. Raises PagecageError if there is no run to show, if `out` holds
    something other than a site, or if Sphinx fails.
    """
    _check_replaceable(out)
    runs = runs_to_publish(run_by_experiment(stored), named)
    with _scratch_beside(out) as scratch:
        given = {run.path: run for run in (*stored, *runs.values())}
        redacted = {
            path: _redacted(run, scratch / f"run-{number}")
            for number, (path, run) in enumerate(given.items())
        }
        shown = {name: redacted[run.path] for name, run in runs.items()}
        site = Site(top, shown, [redacted[run.path] for run in stored])
        source, made = scratch / "source", scratch / "made"
        _lay_out(site, source)
        _build(source, made)
        protect(made)
        _replace(made, out, scratch / "before")
    return out / "index.html"


def _redacted(run: Run, folder: Path) -> Run:
    """Return the run as a stranger gets it, from its bundle next to `folder`."""
    archive = folder.with_suffix(SUFFIX)
    pack(run.path, archive)
    unpack(archive, folder)
    return load_run(folder)


@contextmanager
def _scratch_beside(out: Path) -> Iterator[Path]:
    """Yield a folder on the file system of `out`, so that the site can be renamed into place.

    Raises PagecageError if there cannot be one.
    """
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(scratch_folder(out.parent, "pagecage-site"))
        except OSError as error:
            raise PagecageError(
                f"{out} cannot be written: {error.strerror}", "name another folder with --out"
            ) from None
        yield scratch


def _check_replaceable(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise PagecageError(f"{out} is not a folder", "name another with --out")
    if out.exists() and any(out.iterdir()) and not (out / ".buildinfo").exists():
        raise PagecageError(
            f"{out} holds files that are not a pagecage site", "name another folder with --out"
        )


def _lay_out(site: Site, source: Path) -> None:
    """Write the folder that Sphinx reads."""
    from analysis.site.scorecard import scorecard_page  # late: it imports matplotlib

    for name in ("_static", "_extra", "reports", "docs"):
        (source / name).mkdir(parents=True)
    shutil.copy(_THEME / "conf.py", source)
    shutil.copy(ANALYSIS / "templates/offline/parts.css", source / "_static")
    for name in ("favicon.svg", "site.css", "site.js"):
        shutil.copy(_THEME / name, source / "_static")
    for name, run in site.runs.items():
        _lay_out_report(source, name, run)
    documents, experiments = _lay_out_documents(site.top, source), site.top / "experiments"
    scored = hosted_scorecard(experiments, site.stored)
    (source / "index.md").write_text(pages.index(site.runs, scored.card, documents))
    (source / "scorecard.md").write_text(scorecard_page(scored, site.runs))
    (source / "answers.md").write_text(
        to_markdown(answers_report(open_questions(experiments, scored.runs)))
    )


def _lay_out_report(source: Path, name: str, run: Run) -> None:
    """Write a report's page and downloads, the run's bundle among them."""
    from analysis.figures.thumbnail import thumbnail_svg  # late: it imports matplotlib

    given = source / "_extra" / "runs" / name
    given.mkdir(parents=True)
    render(run.path)
    bundle = f"{run.plan['run_id']}{SUFFIX}"
    for file in (PAGE, NAME):
        shutil.copy(run.path / file, given)
    shutil.copy(run.path.with_suffix(SUFFIX), given / bundle)
    files = {"one page": PAGE, "notebook": NAME, "bundle: raw records and traces": bundle}
    page = site_page(run.path / NAME, name, pages.downloads(run, name, files))
    nbformat.write(page, source / "reports" / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    (source / "_static" / f"{name}.svg").write_text(thumbnail_svg(run, *pages.headline(run)))


_GENERATED = {"docs/answers.md": "answers.md", "docs/SCORECARD.md": "scorecard.md"}
"""Documents that the site generates itself, and their pages there."""


def _lay_out_documents(top: Path, source: Path) -> list[str]:
    """Copy the project's documents; return the names of those for the table of contents."""
    found = {
        path.relative_to(top).as_posix(): path for path in sorted((top / "docs").rglob("*.md"))
    }
    kept = {
        name: path
        for name, path in found.items()
        if path.name != "README.md" and name not in _GENERATED
    }
    (source / "docs/decisions").mkdir()
    for name, path in kept.items():
        (source / name).write_text(drop_outside_links(path.read_text(), name, kept))
    decisions = [Path(name).stem for name in kept if name.startswith("docs/decisions/")]
    (source / "docs/decisions/index.md").write_text(pages.decisions(decisions))
    return [name.removesuffix(".md") for name in kept if name.count("/") == 1]


def _build(source: Path, made: Path) -> None:
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        source,
        made,
    ]
    done = run_process(argv, check=False, timeout_seconds=_BUILD_SECONDS)
    if not done.ok:
        lines = (done.stderr.strip() or "it printed no reason").splitlines()
        raise PagecageError(
            f"the site could not be built: {lines[0]}", "pagecage show NAME --html", EXIT_FAILED
        )


def _replace(made: Path, out: Path, before: Path) -> None:
    """Replace the old site by renames, which is possible because both are on one file system."""
    if out.exists():
        out.rename(before)
    made.rename(out)
    sync_folder(out.parent)


def runs_to_publish(newest: Mapping[str, Run], named: Sequence[Path]) -> dict[str, Run]:
    """Return runs by experiment, sorted by name; runs at smoke size, which show little, come last.

    Raises PagecageError if there is no run, if a folder is not a run, or if two runs are of one
    experiment, because a site has one page for each.
    """
    found = _runs_by_experiment(named) if named else newest
    if not found:
        raise PagecageError("there is no run to publish", "make experiment NAME=constrained-random")
    return dict(sorted(found.items(), key=lambda item: (item[1].plan["size"] == "smoke", item[0])))


def _runs_by_experiment(folders: Sequence[Path]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in map(load_run, folders):
        name = run.plan["experiment"]
        if name in found:
            raise PagecageError(
                f"{found[name].plan['run_id']} and {run.plan['run_id']} are both runs of {name},"
                " which has one page",
                "name one of them",
            )
        found[name] = run
    return found


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_OUTSIDE = ("http://", "https://", "#", "mailto:")


def drop_outside_links(text: str, page: str, pages: Collection[str]) -> str:
    """Replace links to files that are not pages of the site by their text.

    Links to documents that the site generates itself lead to its own pages.

    `page` is the document's path in the site, and `pages` are all paths, such as `docs/FORMAT.md`.
    """

    def replacement(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if target.startswith(_OUTSIDE):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
        if own := _GENERATED.get(path):
            return f"[{label}]({posixpath.relpath(own, posixpath.dirname(page) or '.')})"
        return match[0] if path in pages else label

    return _LINK.sub(replacement, text)
