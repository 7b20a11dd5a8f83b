"""docs/schema/record.schema.json as a check of the records that a test caused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.tree import ROOT

PATH = ROOT / "docs/schema/record.schema.json"


@cache
def validator() -> Draft202012Validator:
    schema = json.loads(PATH.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def breaches(record: dict[str, Any]) -> list[str]:
    """Return the violations of the schema in a record."""
    return [
        f"{error.json_path}: {error.message[:300]}" for error in validator().iter_errors(record)
    ]


def breaches_under(folder: Path) -> list[str]:
    """Return the violations of every complete record in every records file under a folder."""
    found = []
    for path in [*folder.rglob("records.jsonl"), *folder.rglob("host-records.jsonl")]:
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # cut off on purpose, by a kill
            found += breaches(record)
    return found
