"""Rendering of a run folder to `report.ipynb` and a self-contained `report.html`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.data.load import Run, planned_and_recorded
from analysis.views import notebook_file
from analysis.views.notebook_file import numbered
from analysis.views.notebook_run import run_cells
from analysis.views.own.sections import section_cells
from pagecage.checkout import TOP
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.whole_files import write_whole

HERE = TOP / "analysis"
SOURCE = HERE / "notebooks" / "experiment.py"
TEMPLATES = HERE / "templates" / "offline"
NAME, PAGE, FAILED = "report.ipynb", "report.html", "report.failed.ipynb"


def render(
    run_path: Path, include: Sequence[str] = (), known_sections: Collection[str] = ()
) -> Run:
    """Execute the notebook on a run, and export it into the run's folder; return the loaded run.

    `include` is passed to Results. `known_sections` are the hashes of the definition's own sections
    that are executed; the others are left out. An existing report is replaced only by a complete
    one. Raises PagecageError if the folder is not a run, or if a cell fails; the message names the
    notebook with the failure.
    """
    plan, _ = planned_and_recorded(run_path)
    title = f"{plan['experiment']} · {plan['run_id']}"
    document, run = _execute(run_path, title, {"run_dir": ".", "include": list(include)})
    document["cells"] += numbered(
        section_cells(run_path, plan, include, known_sections), len(document["cells"]) + 1
    )
    page = export(document, title)
    write_whole(run_path / NAME, notebook_file.text_of(document))
    write_whole(run_path / PAGE, page)
    return run


def _execute(
    run_path: Path, title: str, parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], Run]:
    """Return the executed notebook and its run.

    It is executed in the run's folder, so that no path of this machine appears in it. Raises a
    cell's PagecageError unchanged; for any other exception, raises one that names the kept
    notebook.
    """
    import analysis.views.notebook  # noqa: F401 - imported here, not in the run's folder, whose matplotlibrc would be read

    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = notebook_file.with_parameters(notebook_file.read_source(SOURCE), parameters)
    start = datetime.now(UTC)
    with chdir(run_path):
        error = run_cells(cells, namespace)
    ran = _papermill(parameters, start, datetime.now(UTC), error)
    document = notebook_file.notebook(cells, {"papermill": ran, "title": title})
    if isinstance(error, PagecageError):  # an invalid record: the message is meant for the user
        raise error
    if error:
        notebook_file.write(document, run_path / FAILED)
        what = f"the report failed: {type(error).__name__}: {error}"
        raise PagecageError(what, f"read {run_path / FAILED}", EXIT_FAILED) from None
    return document, replace(namespace["results"].run, path=run_path)


def _papermill(
    parameters: Mapping[str, Any], start: datetime, end: datetime, error: Exception | None
) -> dict[str, Any]:
    """Return the execution's metadata under papermill's keys, where other tools find parameters."""
    times = {
        "start_time": start.isoformat(),
        "end_time": end.isoformat(),
        "duration": (end - start).total_seconds(),
    }
    metadata = {"parameters": dict(parameters), "exception": True if error else None, **times}
    return {**metadata, "input_path": SOURCE.name, "output_path": NAME}


def export(document: Mapping[str, Any], title: str) -> str:
    """Return an executed notebook as one HTML page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markdown_it import MarkdownIt

    from analysis.views.html import PAGE_POLICY  # late: it imports matplotlib

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["markdown"] = MarkdownIt().render
    return environment.get_template("index.html.j2").render(
        cells=document["cells"], title=title, policy=PAGE_POLICY
    )
