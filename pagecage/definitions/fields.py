"""Field types and base classes of the TOML tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pagecage.errors import PagecageError
from pagecage.units import parse_exact_bytes, parse_size_bytes


def _parsed(value: object, parse: Callable[[str], int | float]) -> int | float:
    if isinstance(value, str):
        try:
            return parse(value)
        except PagecageError as error:
            raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None
    raise ValueError('a size is a string with a unit, as in "200MB" or "1GiB"')


SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? *([kKMGT]B|[KMGT]iB|B)$"
_SizeText = Annotated[str, Field(pattern=SIZE_PATTERN)]
SizeBytes = Annotated[
    int,
    BeforeValidator(
        lambda value: _parsed(value, parse_size_bytes), json_schema_input_type=_SizeText
    ),
    Field(gt=0),
]
ExactBytes = Annotated[
    float,
    BeforeValidator(
        lambda value: _parsed(value, lambda text: float(parse_exact_bytes(text))),
        json_schema_input_type=_SizeText,
    ),
    Field(gt=0, lt=2**63),
]
"""A rate or an amount that need not be a whole number of bytes: "0.12MiB"."""
Count = Annotated[int, Field(gt=0, lt=2**63)]
ExactCount = Annotated[float, Field(gt=0, lt=2**63, allow_inf_nan=False)]
"""A rate or an amount that need not be whole: a tenth of 384 I/Os per second."""


Tables = dict[str, Any]
"""The tables of a TOML file, before or after they were checked."""


@dataclass(frozen=True)
class CheckedBy:
    """Marks a field of the model that the file states as a `table`, from which `make` makes it.

    By default the table's method `to_model` does, or the fields stand in the order of its keys.
    """

    table: Any
    make: Callable[[Any], Any] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        make = self.make or getattr(self.table, "to_model", None)
        return core_schema.no_info_after_validator_function(
            make or (lambda table: source(*dict(table).values())),
            handler.generate_schema(self.table),
        )


Words = Annotated[tuple[str, ...], CheckedBy(list[str], tuple)]


class StrictTable(BaseModel):
    """A table that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


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
