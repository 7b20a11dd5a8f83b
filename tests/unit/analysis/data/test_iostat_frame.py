"""iostat's rows of the measured disk among those of its stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.data import frames
from analysis.data.load import load_run
from tests.fixtures.runs import build_run


def with_devices(folder: Path, *names: str) -> Path:
    """Give each second of every iostat file one entry per name, with the rates 1, 2, ..."""
    for file in folder.glob("trials/*/iostat.json"):
        data = json.loads(file.read_text())
        for row in data["sysstat"]["hosts"][0]["statistics"]:
            [entry] = row["disk"]
            row["disk"] = [
                {**entry, "disk_device": name, "r/s": float(number)}
                for number, name in enumerate(names, 1)
            ]
        file.write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize(
    ("names", "rates"),
    [(("dm-0", "vdb1", "vdb"), {3.0}), (("vdb",), {1.0}), (("other",), {1.0})],
)
def test_only_the_measured_disk_is_shown(
    tmp_path: Path, names: tuple[str, ...], rates: set[float]
) -> None:
    run = load_run(with_devices(build_run(tmp_path / "run"), *names))
    assert set(frames.iostat_frame(run)["reads_per_second"]) == rates
