"""`pagecage schema`: JSON Schemas of the files that users write."""

from __future__ import annotations

import json
from typing import Any

from pagecage.checkout import OWN
from pagecage.cli.options import Folder, writing
from pagecage.cloud.catalogue import Provider
from pagecage.definitions.cage_file import CageFile
from pagecage.definitions.experiment_file import ExperimentFile
from pagecage.errors import EXIT_OK


def schema(directory: Folder = OWN / "docs/schema") -> int:
    """Write the JSON Schemas of experiments, cages and the catalogue.

    An editor that supports JSON Schema completes and checks the keys of these files.

    Parameters
    ----------
    directory
        Directory to write to; created if missing
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in schemas().items():
            (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return EXIT_OK


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of docs/schema/ by file name."""
    return {
        f"{name}.schema.json": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **model.model_json_schema(),
        }
        for name, model in (
            ("experiment", ExperimentFile),
            ("cage", CageFile),
            ("catalogue", Provider),
        )
    }
