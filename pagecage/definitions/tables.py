"""The tables of experiments/*.toml and cgroups/*.toml, as pydantic checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pagecage.errors import PagecageError
from pagecage.units import parse_size_bytes


def _size_bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_size_bytes(value)
        except PagecageError as error:
            raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None
    raise ValueError('a size is a string with a unit, as in "200MB" or "1GiB"')


_SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? *([kKMGT]B|[KMGT]iB|B)$"
SizeBytes = Annotated[
    int,
    BeforeValidator(_size_bytes, json_schema_input_type=Annotated[str, Field(pattern=_SIZE_PATTERN)]),
    Field(gt=0),
]
PLACES = ("file", "sidecar", "data_dir", "max_seconds")
CacheState = Literal["cold", "resident", "any"]
Collector = Literal["iostat", "sar", "vmtouch", "bpftrace"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(_Strict):
    """Where a question or a figure comes from."""

    title: str = ""
    author: str = ""
    date: str = ""
    url: str = ""


class Fraction(_Strict):
    """A size as a share of the dataset's."""

    dataset_fraction: Annotated[float, Field(gt=0)]


class CageFile(_Strict):
    """One file of cgroups/. Limits are systemd properties, verbatim (systemd.resource-control(5)); absent: no limit."""

    about: str
    MemoryMax: SizeBytes | Fraction | None = None
    MemorySwapMax: SizeBytes | Literal["infinity"] | None = Field(None, description="closed (0) unless given")
    IOReadBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOReadIOPSMax: Annotated[int, Field(gt=0)] | None = None
    IOWriteBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOWriteIOPSMax: Annotated[int, Field(gt=0)] | None = None
    CPUQuota: Annotated[int, Field(gt=0, description="percent of one CPU")] | None = None
    provider: str | None = None
    io_accounting_bytes: SizeBytes | None = None
    burst_bucket: dict[str, float] | None = None
    source: Source | None = None


class WorkloadTable(_Strict):
    """The program: one of workloads/ (`handshake`), or any command."""

    program: str
    kind: Literal["handshake", "command"] = "handshake"
    arguments: list[str] = []
    min_memory_bytes: SizeBytes | None = None


class SizeTable(_Strict):
    """How large a run of this size is; `max_seconds` bounds one measured part."""

    dataset: SizeBytes | None = None
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    repeats: Annotated[int, Field(gt=0)] | None = None


class LevelTable(_Strict):
    """What one level changes."""

    arguments: list[str] = []
    cache: CacheState | None = None
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    cage: str | None = None


class ClaimTable(_Strict):
    """A published figure and the rule by which it counts as reproduced."""

    id: str
    says: str
    published: float | str
    unit: str
    response: str
    rule: Literal["absolute", "outcome", "ratio"]
    where: dict[str, str]
    over: dict[str, str] | None = None
    tolerance_factor: Annotated[float, Field(ge=1)] = 2.0
    needs: Literal["published_size", "any_size"] = "any_size"
    remark: str = ""


class ExperimentFile(_Strict):
    """One file of experiments/: a question, the factors varied to answer it, the sizes it can be run at, its claims."""

    question: str
    story: str = ""
    source: Source | None = None
    workload: WorkloadTable
    response: str = "full_pass_seconds"
    repeats: Annotated[int, Field(gt=0)] = 5
    fresh: Literal["never", "run", "block", "trial"] = "never"
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    collectors: list[Collector] = []
    factors: dict[str, list[str]]
    levels: dict[str, dict[str, LevelTable]] = {}
    exclude: list[dict[str, str]] = []
    sizes: dict[Literal["full", "default", "emulated", "smoke"], SizeTable]
    claims: list[ClaimTable] = []

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentFile:
        if not self.factors:
            raise ValueError("factors is empty: an experiment varies something")
        for factor, levels in self.factors.items():
            if not levels:
                raise ValueError(f"factors.{factor} has no levels")
            if len(set(levels)) != len(levels):
                raise ValueError(f"factors.{factor} names a level twice")
        for factor, tables in self.levels.items():
            for level in tables:
                if level not in self.factors.get(factor, []):
                    raise ValueError(f"levels.{factor}.{level} is no level of factors.{factor}")
        self._check_treatments()
        self._check_places()
        if missing := {"full", "default", "emulated", "smoke"} - set(self.sizes):
            raise ValueError(f"sizes.{min(missing)} is missing")
        return self

    def _check_treatments(self) -> None:
        """Exclusions must name what exists, and factors but `cage` a table for each level."""
        for number, out in enumerate(self.exclude):
            if not out or (unknown := _outside(out, self.factors)):
                raise ValueError(f"exclude[{number}]: {unknown if out else 'it names no factor'} is no level here")
        for factor, levels in self.factors.items():
            bare = [level for level in levels if level not in self.levels.get(factor, {})]
            if bare and factor != "cage":
                raise ValueError(f"levels.{factor}.{bare[0]} is missing: a level without a table would change nothing")

    def _check_places(self) -> None:
        """A {place} in an argument must be one that the agent fills in, and have something to be filled with."""
        tables = [table for levels in self.levels.values() for table in levels.values()]
        for argument in [*self.workload.arguments, *(a for table in tables for a in table.arguments)]:
            for place in re.findall(r"\{([a-z_]+)\}", argument):
                if place not in PLACES and self.workload.kind == "handshake":
                    raise ValueError(f"workload.arguments: no {{{place}}}; known: {', '.join(PLACES)}")
                bare = [n for n, size in self.sizes.items() if place in PLACES and not _fills(place, size)]
                if bare:
                    raise ValueError(f"sizes.{bare[0]} gives nothing for {{{place}}}")


def _fills(place: str, size: SizeTable) -> bool:
    if place in ("file", "sidecar"):
        return size.dataset is not None
    return place != "max_seconds" or size.max_seconds is not None


def _outside(where: Mapping[str, str], factors: Mapping[str, list[str]]) -> str | None:
    """What of a partial treatment the factors do not know."""
    for factor, level in where.items():
        if level not in factors.get(factor, []):
            return f"{factor} = {level!r}"
    return None
