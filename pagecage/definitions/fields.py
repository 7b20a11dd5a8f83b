"""Field types and base classes of the TOML tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pagecage.errors import PagecageError
from pagecage.units import parse_size_bytes


def _size_bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_size_bytes(value)
        except PagecageError as error:
            raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None
    raise ValueError('a size is a string with a unit, as in "200MB" or "1GiB"')


SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? *([kKMGT]B|[KMGT]iB|B)$"
SizeBytes = Annotated[
    int,
    BeforeValidator(
        _size_bytes, json_schema_input_type=Annotated[str, Field(pattern=SIZE_PATTERN)]
    ),
    Field(gt=0),
]
Count = Annotated[int, Field(gt=0, lt=2**63)]


class StrictTable(BaseModel):
    """A table that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class IopsBucket(StrictTable):
    """A token bucket of I/Os.

    It allows `rate` per second while its `credits` last and refills at the base rate.
    """

    rate: Count
    credits: Count


class BandwidthBucket(StrictTable):
    """A token bucket of bytes.

    It allows `rate` per second while its `credits` last and refills at the base rate.
    """

    rate: SizeBytes
    credits: SizeBytes


class Citation(StrictTable):
    """The source of a question or a figure."""

    title: str = ""
    author: str = ""
    date: str = ""
    url: str = ""
