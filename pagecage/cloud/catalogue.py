"""Reads the catalogue of cloud volumes and instances, cgroups/catalogue/*.toml."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from pagecage.cloud.catalogue_tables import (
    BurstRuleTable,
    InstancesTable,
    MachineCapsTable,
    MachinesTable,
    ProviderFile,
    TypeTable,
)
from pagecage.cloud.formulas import Formula, SizeStep, SizeSteps, formula_of, greatest
from pagecage.cloud.offers import (
    BurstRule,
    InstanceCaps,
    InstanceType,
    MachineFamily,
    Provider,
    PublishedLatency,
    SizeBounds,
    Tier,
    VcpuCaps,
    VolumeSource,
    VolumeType,
)
from pagecage.errors import PagecageError
from pagecage.model.cage import IoAccounting
from pagecage.units import MIB

_UNIT_BYTES = {"MiB": MIB, "MB": 1000**2}


def read_offers(folder: Path) -> tuple[Provider, ...]:
    """Every provider of the catalogue, in order of their names. Raises PagecageError naming file and key."""
    return tuple(_provider(path) for path in sorted(folder.glob("*.toml")))


def _provider(path: Path) -> Provider:
    try:
        # Decimal, because 0.75 IOPS a GiB is meant exactly.
        table = ProviderFile.model_validate(tomllib.loads(path.read_text(), parse_float=Decimal))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PagecageError(f"{path.name}: {error}", f"edit {path}; https://toml.io describes the syntax") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise PagecageError(f"{path.name}: {key or 'file'}: {message}", f"edit {path}") from None
    known = {name: VolumeSource(told.title, told.url, told.date) for name, told in table.sources.items()}
    return Provider(
        path.stem, table.title,
        tuple(_type(path.stem, told, known) for told in table.types),
        tuple(made for told in table.instances for made in _instances(told, known)),
        tuple(_machines(told, known) for told in table.machines),
    )  # fmt: skip


def _type(provider: str, table: TypeTable, known: dict[str, VolumeSource]) -> VolumeType:
    iops, throughput = formula_of(table.iops), formula_of(table.throughput)
    iops_burst, throughput_burst = _bursts(table.burst)
    if table.tiers:
        iops, throughput, iops_burst, throughput_burst = _tiers(table)
    count, size, latency = table.accounting, table.size, table.latency
    return VolumeType(
        provider, table.type, table.about, _named(table.sources, known),
        SizeBounds(size.least, size.most, size.step) if size else None, _UNIT_BYTES[table.throughput_unit],
        formula_of(table.read_iops) or iops, formula_of(table.write_iops) or iops,
        formula_of(table.read_throughput) or throughput, formula_of(table.write_throughput) or throughput,
        iops_burst, throughput_burst, tuple(Tier(name, tier.size) for name, tier in table.tiers.items()),
        IoAccounting(count.io_size, count.merged, count.combined),
        PublishedLatency(**latency.model_dump()) if latency else None, table.remark,
    )  # fmt: skip


def _named(names: list[str], known: dict[str, VolumeSource]) -> tuple[VolumeSource, ...]:
    return tuple(known[name] for name in names)


def _bursts(table: BurstRuleTable | None) -> tuple[BurstRule | None, BurstRule | None]:
    if table is None:
        return None, None
    iops, throughput = formula_of(table.iops), formula_of(table.throughput)
    return (
        BurstRule(iops, formula_of(table.iops_credits), table.seconds) if iops else None,
        BurstRule(throughput, formula_of(table.throughput_credits), table.seconds) if throughput else None,
    )


def _tiers(table: TypeTable) -> tuple[Formula, Formula, BurstRule | None, BurstRule | None]:
    """A table of tiers is four steps over the size; where no tier bursts there is no rule."""
    iops, throughput, burst_iops, burst_throughput = (
        SizeSteps(tuple(SizeStep(tier.size, getattr(tier, figure)) for tier in table.tiers.values()))
        for figure in ("iops", "throughput", "burst_iops", "burst_throughput")
    )
    return iops, throughput, _tier_burst(burst_iops, table), _tier_burst(burst_throughput, table)


def _tier_burst(rate: SizeSteps, table: TypeTable) -> BurstRule | None:
    return None if greatest(rate) is None else BurstRule(rate, None, table.tier_burst_seconds)


def _instances(table: InstancesTable, known: dict[str, VolumeSource]) -> list[InstanceType]:
    made = []
    for name, told in table.sizes.items():
        caps = InstanceCaps(
            told.iops, told.iops, told.throughput, told.throughput, told.burst_iops or table.burst_iops,
            told.burst_throughput or table.burst_throughput, table.burst_seconds,
        )  # fmt: skip
        made.append(InstanceType(name, told.memory, caps, _named(table.sources, known), table.remark))
    return made


def _machines(table: MachinesTable, known: dict[str, VolumeSource]) -> MachineFamily:
    caps = {kind: tuple(VcpuCaps(row.vcpus, _caps(row)) for row in rows) for kind, rows in table.caps.items()}
    return MachineFamily(table.family, caps, _named(table.sources, known), table.remark)


def _caps(row: MachineCapsTable) -> InstanceCaps:
    return InstanceCaps(row.read_iops, row.write_iops, row.read_throughput, row.write_throughput)
