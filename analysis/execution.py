"""Execution of the notebooks with a kernel, and their rendered pages.

`python -m analysis.execution FOLDER [RUN...]` writes the notebooks of these runs. Without any, it
writes those of the stored runs and of the articles.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from analysis.data.load import opened
from analysis.run_frames import EXPERIMENTS, STORED, find_run
from analysis.views.render import HERE, export, notebook, read_source, with_parameters
from pagecage.bundle.pack import SUFFIX
from pagecage.errors import EXIT_FAILED, EXIT_OK, PagecageError
from pagecage.model.published_figures import read_definitions, read_titles
from pagecage.model.run_files import read_plan
from pagecage.process import OWN_PYTHON
from pagecage.whole_files import write_whole

NOTEBOOKS = HERE / "notebooks"
_CELL_SECONDS = 300
_ARGUMENTS = ["--InlineBackend.figure_format=retina"]
_LOADED = re.compile(r'\bload\("([a-z0-9-]+)"')
_INLINE = "module://matplotlib_inline.backend_inline"


def execute(source: Path, folder: Path, title: str, /, **parameters: Any) -> Any:
    """Execute a notebook in a folder, with a kernel of this Python; return it with its outputs.

    `title` replaces its heading. The settings of the user's IPython are not read. Raises
    PagecageError if a cell fails, or takes longer than five minutes.
    """
    cells = with_parameters(read_source(source), parameters)
    cells[0]["source"] = re.sub(r"\A# .*", lambda _: f"# {title}", cells[0]["source"])
    document: Any = nbformat.from_dict(notebook(cells, {"title": title}))  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="pagecage-kernel-") as scratch:
        manager = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            connection_file=f"{scratch}/kernel.json",
            transport="ipc",
            ip=f"{scratch}/socket",
        )
        client = NotebookClient(
            document,
            manager,
            timeout=_CELL_SECONDS,
            resources={"metadata": {"path": str(folder)}},
            extra_arguments=list(_ARGUMENTS),
            record_timing=False,
        )
        environment = {**os.environ, **OWN_PYTHON, "IPYTHONDIR": scratch, "MPLBACKEND": _INLINE}
        try:
            _run(client, manager, environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            reason = type(error).__name__
            if isinstance(error, CellExecutionError):
                reason = f"{error.ename}: {error.evalue}"
            number = max(cell.get("execution_count") or 0 for cell in document.cells)
            message = f"cell {number} of {source.name} failed for {title}: {reason}"
            raise PagecageError(message, "run its cells in JupyterLab", EXIT_FAILED) from None
    return document


def _run(
    client: NotebookClient, manager: AsyncKernelManager, environment: Mapping[str, str]
) -> None:
    """Run all cells in a thread, where nbclient leaves this process's signal handlers alone."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(client.execute, env=environment, cleanup_kc=True)
        try:
            done.result()
        except KeyboardInterrupt:
            # The client would wait for the cell to end, and a kernel may still be starting.
            while wait([done], 0.1).not_done:
                if pid := getattr(manager.provisioner, "pid", None):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            raise


def run_notebook(plan: Mapping[str, Any]) -> Path:
    """Return the notebook for a run with this plan.

    It is the experiment's own if the plan has the factors of the definition that it was written
    for.
    """
    name = str(plan["experiment"])
    found = {path.stem: path for path in (NOTEBOOKS / "experiments").glob("*.py")}.get(name)
    if found is None or name not in (known := read_definitions(EXPERIMENTS)):
        return NOTEBOOKS / "run.py"
    is_same = set(known[name]["factors"]) == set(plan["definition"]["factors"])
    return found if is_same else NOTEBOOKS / "run.py"


def article_notebooks(experiments: Collection[str] | None = None) -> dict[str, Path]:
    """Return the articles' notebooks by the first part of their figures' ids.

    With `experiments`, only those that load no run of another experiment.
    """
    found = {}
    for path in sorted((NOTEBOOKS / "articles").glob("*.py")):
        loaded = set(_LOADED.findall(path.read_text(encoding="utf-8")))
        if experiments is None or loaded <= set(experiments):
            found[path.stem.partition("-")[0]] = path
    return found


def execute_article(article: str, source: Path, bundles: Path) -> Any:
    title = read_titles(EXPERIMENTS)[article]["title"]
    return execute(source, bundles, title, bundles=".")


def main(out: Path, named: Sequence[str]) -> int:
    """Execute notebooks, and write each and its page to a folder; return the exit status."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        for path in [find_run(name) for name in named] or sorted(STORED.glob(f"*{SUFFIX}")):
            with opened(path) as folder:
                plan = read_plan(folder)
            title, folder = f"{plan['experiment']} · {plan['run_id']}", path.resolve().parent
            document = execute(run_notebook(plan), folder, title, source=path.name)
            _write(document, out / plan["run_id"])
        for article, source in article_notebooks().items() if not named else ():
            _write(execute_article(article, source, STORED), out / source.stem)
    except PagecageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return EXIT_OK


def _write(document: Any, path: Path) -> None:
    page = export(document, document.metadata["title"], with_code=True)
    write_whole(Path(f"{path}.ipynb"), nbformat.writes(document))  # type: ignore[no-untyped-call]
    write_whole(Path(f"{path}.html"), page)
    sys.stdout.write(f"{path}.html\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
