"""JupyterLab, as `make lab` starts it, in a browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from analysis.views.render import read_source
from tests.tree import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
TOKEN = "a-token-of-this-test"
FLAGS = (
    *("--no-browser", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"),
    "--ServerApp.use_redirect_file=False",
)
NOTEBOOK = "experiments/constrained-random.py"
SOURCE = ROOT / "analysis/notebooks" / NOTEBOOK
CODE_CELLS = sum(cell["cell_type"] == "code" for cell in read_source(SOURCE))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for a copy of the notebooks; yields its address."""
    top = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "analysis/notebooks", top / "analysis/notebooks")
    for name in (".venv", "tools"):
        (top / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "Makefile", top)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = " ".join((*FLAGS, f"--port={port}"))
    argv = ["make", "--directory", str(top), "lab", f"ARGS={flags}"]
    home = {"HOME": str(top / "home"), "XDG_RUNTIME_DIR": ""}
    with (top / "log").open("w") as log:
        server = subprocess.Popen(
            argv, env={**os.environ, **home}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_served(f"{address}/api/status?token={TOKEN}", server, top / "log")
            yield address
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


def wait_until_served(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).read()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)


def wait_for_kernel(lab: str) -> None:
    """Wait until the page is connected to its kernel; before that, JupyterLab asks for one."""
    while True:
        answer = urllib.request.urlopen(f"{lab}/api/sessions?token={TOKEN}", timeout=10).read()
        kernels = [session["kernel"] for session in json.loads(answer)]
        if any(one["connections"] and one["execution_state"] == "idle" for one in kernels):
            return
        time.sleep(0.2)


def opened_notebook(browser: Browser, lab: str) -> Page:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{lab}/lab/tree/{NOTEBOOK}?token={TOKEN}")
    page.wait_for_selector(".jp-NotebookPanel:visible .jp-Cell", timeout=120_000)
    return page


def test_a_script_opens_as_a_notebook_and_all_its_cells_run(browser: Browser, lab: str) -> None:
    page = opened_notebook(browser, lab)
    wait_for_kernel(lab)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    panel = page.locator(".jp-NotebookPanel:visible")
    numbers = panel.locator(".jp-CodeCell .jp-InputPrompt")
    expect(numbers).to_have_text([f"[{n}]:" for n in range(1, CODE_CELLS + 1)], timeout=180_000)
    assert panel.locator("table.dataframe").count() >= 6
    assert panel.locator(".jp-RenderedImage img").count() == 2
    errors = panel.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert errors.all_inner_texts() == []
    page.close()
