"""A run's folder turned into `report.ipynb` and `report.html`, which loads nothing from anywhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.door import check_records, read_plan
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.record import read_records

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "notebooks" / "experiment.py"
KERNEL = "python3"
CELL_TIMEOUT_SECONDS = 300
_SOCKETS = {"KernelManager": {"transport": "ipc"}}
"""The kernel is spoken to by sockets in a folder of ours, not by ports that anybody on the machine may try."""


def render(run_path: Path, include: Sequence[str] = ()) -> Path:
    """Execute the notebook on a run and export it; gives the HTML file's path. `include` as Results has it.

    A report that is there already stays as it is until the new one is whole. Raises PagecageError when a cell fails,
    naming the notebook in which the failure can be read.
    """
    plan = read_plan(run_path)
    check_records(run_path, plan, list(read_records(run_path / "records.jsonl")))
    title = f"{plan['experiment']} · {plan['run_id']}"
    page = run_path / "report.html"
    with tempfile.TemporaryDirectory(prefix="pagecage-report-") as scratch:
        _keep_to_ourselves(Path(scratch))
        notebook, exported = Path(scratch) / "report.ipynb", Path(scratch) / page.name
        _execute(run_path.resolve(), include, notebook, Path(scratch) / "source.ipynb")
        exported.write_text(export(notebook, title))
        for made in (notebook, exported):
            _put(made, run_path / made.name)
    return page


def _put(made: Path, target: Path) -> None:
    """Move a whole file to its name; the scratch folder may be on another file system."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, aside)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _keep_to_ourselves(scratch: Path) -> None:
    """Only this environment's kernel, and nothing of the user's Jupyter or IPython settings, read or written."""
    os.environ |= {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(scratch),
        "JUPYTER_DATA_DIR": str(scratch),
        "JUPYTER_RUNTIME_DIR": str(scratch),
        "IPYTHONDIR": str(scratch),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])),
    }


def _execute(run_path: Path, include: Sequence[str], target: Path, source: Path) -> None:
    """papermill fills in the parameters, runs every cell and records when."""
    import jupytext
    import papermill
    from traitlets.config import Config

    jupytext.write(jupytext.read(SOURCE), source)
    try:
        papermill.execute_notebook(
            source, target, parameters={"run_dir": ".", "include": list(include)},
            kernel_name=KERNEL, progress_bar=False,
            execution_timeout=CELL_TIMEOUT_SECONDS, cwd=str(run_path), config=Config(_SOCKETS),
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        if error.ename == PagecageError.__name__:  # a record that cannot be judged: what it says is meant for the user
            message, _, mend = str(error.evalue).partition("\n  mend: ")
            raise PagecageError(message, mend) from None
        failed = run_path / "report.failed.ipynb"
        _put(target, failed)
        raise PagecageError(
            f"the report failed: {error.ename}: {error.evalue}", f"read {failed}", EXIT_FAILED
        ) from None


def export(notebook: Path, title: str) -> str:
    """The executed notebook as one page, by the template that stands beside this file.

    Where on this machine it was made is taken out of the notebook first, so that both can be given away.
    """
    import nbformat
    from nbconvert.exporters import HTMLExporter

    content = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    content.metadata["title"] = title
    content.metadata["papermill"] |= {"input_path": SOURCE.name, "output_path": notebook.name}
    nbformat.write(content, notebook)  # type: ignore[no-untyped-call]
    folder = str(HERE / "templates")
    exporter = HTMLExporter(template_name="offline", extra_template_basedirs=[folder])  # type: ignore[no-untyped-call]
    page, _ = exporter.from_notebook_node(content)
    return str(page)
