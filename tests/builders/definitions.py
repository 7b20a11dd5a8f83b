"""Definitions written to a folder, and their refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError

CAGES = {
    "uncaged": 'about = "none"\nMemorySwapMax = "infinity"\n',
    "tenth": 'about = "a tenth"\nMemoryMax = { dataset_fraction = 0.1 }\n',
    "tight": (
        'about = "all"\nMemoryMax = "10MB"\nIOReadBandwidthMax = "20MB"\nIOReadIOPSMax ='
        " 500\nCPUQuota = 50\n"
    ),
}

EXPERIMENT = """
question = "?"
fresh = "never"
collectors = ["iostat"]
[workload]
program = "pcread"
arguments = ["--file", "{file}", "--max-seconds", "{max_seconds}"]
min_memory_bytes = "1MiB"
[factors]
cage = ["uncaged", "tenth"]
pattern = ["sequential", "random"]
[levels.pattern.sequential]
arguments = ["--pattern", "sequential"]
cache = "cold"
[levels.pattern.random]
arguments = ["--pattern", "random"]
read_ahead_kb = 0
[sizes]
full = { dataset = "10GiB", max_seconds = 3600 }
default = { dataset = "1GiB", max_seconds = 300 }
emulated = { dataset = "128MiB", max_seconds = 15 }
smoke = { dataset = "32MiB", max_seconds = 4, repeats = 1 }
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with three cages and one experiment."""
    (tmp_path / "cgroups").mkdir()
    (tmp_path / "experiments").mkdir()
    for name, text in CAGES.items():
        (tmp_path / "cgroups" / f"{name}.toml").write_text(text)
    (tmp_path / "experiments/asked.toml").write_text(EXPERIMENT)
    return tmp_path


def definitions(top: Path) -> Definitions:
    return Definitions(top, ["pcgen", "pcread"])


def refusal(top: Path, text: str) -> PagecageError:
    """Return the error for an experiment with this text."""
    (top / "experiments/asked.toml").write_text(text)
    with pytest.raises(PagecageError) as caught:
        definitions(top).experiment("asked")
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith("asked.toml: ")
    return caught.value
