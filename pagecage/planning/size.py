"""Duration of a plan, and the largest size that fits a budget."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pagecage.definitions.experiment import SIZES, Experiment
from pagecage.definitions.trial_tables import SizeTable
from pagecage.model.cage import Cage
from pagecage.model.disk_speed import ASSUMED, DEFAULT_WINDOW_KIB, DiskSpeed
from pagecage.model.json_codec import Json
from pagecage.model.trial import Trial
from pagecage.model.volume_model import mean_us_at_size, volume_limits
from pagecage.planning.summary import LOAD_SECONDS, OVERHEAD_SECONDS, expected_trial_seconds
from pagecage.units import BLOCK_BYTES, KIB, MIB, exact_size, format_bytes, format_hours

_MEMORY_BYTES_PER_SECOND = 3e9  # one processor that adds up the bytes of a resident file
_LEAST_OBSERVED_SECONDS = 1.0  # iostat and sar report each second, and the first is waited for
_MOST_IN_FLIGHT = 16  # reads of threads beyond this number wait for each other


EMULATED_IOPS = 1000
EMULATED_BYTES_PER_SECOND = 48 * MIB
"""I/O that an emulated guest can drive in addition to its own work (docs/FIDELITY.md, part 1)."""
EMULATED_DISK = DiskSpeed(
    EMULATED_BYTES_PER_SECOND,
    EMULATED_BYTES_PER_SECOND,
    1 / EMULATED_IOPS,
    1 / EMULATED_IOPS + 128 * KIB / EMULATED_BYTES_PER_SECOND,
    trial_seconds=4.0,
)


def fitting_dilation(cage: Cage) -> float:
    """Return the least whole factor at which an emulated guest can reach each limit of a volume."""
    factors = [
        (limit.burst_per_second or limit.per_second)
        / (EMULATED_IOPS if limit.unit == "operations" else EMULATED_BYTES_PER_SECOND)
        for one in cage.by_disk.values()
        for limit in volume_limits(one)
    ]
    return float(max(1, math.ceil(max(factors, default=1.0))))


def making_seconds(trials: Sequence[Trial], disk: DiskSpeed) -> float:
    """Return the estimated time in which the datasets of trials are made, each of them once."""
    datasets = {data.file_name: data.size_bytes for trial in trials for data in trial.datasets}
    return sum(datasets.values()) / disk.write_bytes_per_second


def trial_seconds(trial: Trial, disk: DiskSpeed) -> float:
    """Return the estimated duration of one trial whose datasets exist."""
    fixed, words = disk.trial_seconds, trial.workload.arguments
    most_seconds = _runtime_seconds(words) or trial.max_seconds
    if trial.cache == "resident":
        fixed += trial.dataset_bytes / disk.read_bytes_per_second
    if "time_based=1" in words:
        measured = most_seconds or 0.0
    else:
        one_pass = trial.dataset_bytes / _MEMORY_BYTES_PER_SECOND
        if trial.cache != "resident" or _value(words, "--source") == "heap":
            one_pass = max(one_pass, _disk_seconds(trial, disk, *_reads(trial)))
        measured = _passes(words) * one_pass
    measured = min(measured, most_seconds or math.inf)
    return fixed + (max(measured, _LEAST_OBSERVED_SECONDS) if trial.collectors else measured)


_RUNTIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _runtime_seconds(words: Sequence[str]) -> float | None:
    """Return the `runtime` of a job of fio, which replaces the trial's max_seconds."""
    match = _RUNTIME.fullmatch(_job_option(words, "runtime") or "")
    return float(match[1]) * _UNIT_SECONDS[match[2]] if match else None


def _passes(words: Sequence[str]) -> float:
    """Return how often the disk delivers the data: direct jobs of fio share no page cache."""
    passes = float(_value(words, "--passes") or 1)
    is_shared = "direct=1" not in words or _job_option(words, "offset_increment") is not None
    return passes if is_shared else passes * _job_number(words, "numjobs")


def _job_option(words: Sequence[str], name: str) -> str | None:
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found[-1] if found else None


def _job_number(words: Sequence[str], name: str) -> int:
    value = _job_option(words, name) or ""
    return max(1, int(value)) if value.isdecimal() else 1


def _job_block_bytes(words: Sequence[str]) -> int:
    match = re.fullmatch(r"([0-9]+)([km]?)", _job_option(words, "bs") or "")
    return int(match[1]) * {"": 1, "k": KIB, "m": MIB}[match[2]] if match else BLOCK_BYTES


def _reads(trial: Trial) -> tuple[float, float]:
    words, total = trial.workload.arguments, trial.dataset_bytes
    read_ahead_kb = DEFAULT_WINDOW_KIB if trial.read_ahead_kb is None else trial.read_ahead_kb
    window = max(BLOCK_BYTES, read_ahead_kb * KIB)
    block = int(_value(words, "--block-bytes") or _job_block_bytes(words))
    if not _is_random(words):
        window = block if "direct=1" in words else window
        return total / window, window
    if "--direct" in words or _value(words, "--advice") == "random" or "direct=1" in words:
        window = BLOCK_BYTES
    if _value(words, "--source") in ("heap", "heap-thp"):  # filled from the file in order
        return total / window, window
    memory = trial.cage.properties.get("MemoryMax") or trial.machine_memory_bytes or total
    refused = max(0.0, 1 - memory / total)
    windows = total / max(window, block)
    return windows + max(0.0, total / block - windows) * refused, max(window, block)


def _is_random(words: Sequence[str]) -> bool:
    pattern = _value(words, "--pattern") or _job_option(words, "rw") or "sequential"
    return pattern not in ("sequential", "read", "write")


def _value(words: Sequence[str], option: str) -> str | None:
    found = [value for name, value in itertools.pairwise(words) if name == option]
    return found[-1] if found else None


def _disk_seconds(trial: Trial, disk: DiskSpeed, reads: float, size_bytes: float) -> float:
    cage, total = trial.cage, reads * size_bytes
    words = trial.workload.arguments
    in_order = not _is_random(words)
    threads = int(_value(words, "--threads") or 1)
    threads *= _job_number(words, "numjobs") * _job_number(words, "iodepth")
    one = 0.0 if in_order else disk.read_seconds(size_bytes) / min(threads, _MOST_IN_FLIGHT)
    if cage.is_volume and cage.simulation and cage.simulation.read_latency:
        one = max(one, mean_us_at_size(cage.simulation.read_latency, size_bytes) / 1e6)
    times = [reads * one, total / disk.read_bytes_per_second]
    for name, amount in (("IOReadBandwidthMax", total), ("IOReadIOPSMax", reads)):
        if cap := cage.properties.get(name):
            times.append(amount / cap)
    return max(times)


DEFAULT_BUDGET_SECONDS = 180.0
_TOLERANCE = 1.1  # "about" three minutes
_KEPT = ("files", "places", "writes", "prepared")
"""Properties in which two sizes must agree, so that there are sizes between them."""


def has_datasets(experiment: Experiment) -> bool:
    """Return whether every size of an experiment is the size of a dataset."""
    return all(size.dataset for size in experiment.sizes.values())


BlockSeconds = Callable[[Experiment, str], tuple[float, float]]
"""Returns the estimated seconds of making the data of a size, and of one repeat of its trials."""


@dataclass(frozen=True)
class FittingSize:
    """A size that was chosen by its duration. `experiment` defines it under the name `size`."""

    experiment: Experiment
    size: str
    repeats: int
    expected_seconds: float
    reason: str


def fitting_size(
    experiment: Experiment, repeats: int | None, budget_seconds: float, estimate: BlockSeconds
) -> FittingSize:
    """Return the largest size whose plan is expected to end within the budget.

    The experiment has datasets. `repeats` were asked for; None stands for the repeats of the
    definition. Where the smallest dataset takes longer with all of them, it is repeated less often.
    Where one repeat of it takes longer too, the definition's size smoke is taken, whatever it
    takes.
    """
    most_seconds = budget_seconds * _TOLERANCE

    def wanted(experiment: Experiment, size: str) -> int:
        return repeats or experiment.sizes[size].repeats or experiment.repeats

    def seconds(experiment: Experiment, size: str) -> float:
        making, block = estimate(experiment, size)
        return making + block * wanted(experiment, size)

    full = seconds(experiment, "full")
    smallest = smoke = (experiment, "smoke")
    for smallest in _candidates(experiment):
        taken = full if smallest[1] == "full" else seconds(*smallest)
        if taken <= most_seconds:
            return _chosen(*smallest, wanted(*smallest), taken, full)
    if repeats is None:
        making, block = estimate(*smallest)
        if (fit := math.floor((most_seconds - making) / block)) >= 1:
            found = _chosen(*smallest, fit, making + fit * block, full)
            planned = wanted(*smallest)
            less = f"{fit} repeats, because {planned} take {_about(making + planned * block)}; "
            return replace(found, reason=less + found.reason)
    return _chosen(*smoke, wanted(*smoke), seconds(*smoke), full)


def _chosen(
    experiment: Experiment, size: str, repeats: int, seconds: float, full_seconds: float
) -> FittingSize:
    published = " as published" if experiment.claims else ""
    extent, full = (format_bytes(experiment.sizes[s].total_bytes or 0) for s in (size, "full"))
    reason = f"{_about(seconds)} at {extent}"
    more = f"; SIZE=full is {full}{published}, {_about(full_seconds)}"
    reason += published if size == "full" else more
    return FittingSize(experiment, size, repeats, seconds, reason)


def _about(seconds: float) -> str:
    return f"about {format_hours(seconds)}"


def _candidates(experiment: Experiment) -> Iterator[tuple[Experiment, str]]:
    """Yield the sizes from the largest to the smallest, those between the definition's included."""
    default = experiment.sizes["default"]
    for larger, smaller in zip(SIZES, (*SIZES[1:], SIZES[-1]), strict=True):
        size = experiment.sizes[larger]
        design = size if larger == "full" else default
        kept = {"repeats": design.repeats, "treatments": design.treatments}
        if larger in ("full", "default"):
            yield experiment, larger
        else:
            yield _with_size(experiment, size.model_copy(update=kept), larger)
        for between in _between(size, experiment.sizes[smaller]):
            yield _with_size(experiment, between.model_copy(update=kept), larger)


def _between(larger: SizeTable, smaller: SizeTable) -> Iterator[SizeTable]:
    """Yield sizes between two, whose datasets are powers of two, the largest first."""
    if any(getattr(larger, name) != getattr(smaller, name) for name in _KEPT):
        return
    high, low = larger.dataset, smaller.dataset
    if not high or not low or high <= low:
        return
    power = 2 ** math.floor(math.log2(high - 1))
    while power > low:
        share = math.log(power / low) / math.log(high / low)
        limit = larger.max_seconds
        if limit is not None and smaller.max_seconds is not None:
            least = smaller.max_seconds
            limit = float(f"{least * (limit / least) ** share:.2g}")
        yield larger.model_copy(update={"dataset": power, "max_seconds": limit})
        power //= 2


def _with_size(experiment: Experiment, size: SizeTable, like: str) -> tuple[Experiment, str]:
    """Return the experiment with another size, and its name: the size of all its files."""
    name = exact_size(size.total_bytes or 0)
    tables = dict(experiment.definition.get("sizes", {}))
    values: Json = {
        "dataset": exact_size(size.dataset or 0),
        "max_seconds": size.max_seconds,
        "repeats": size.repeats,
        "treatments": size.treatments,
    }
    given = {key: value for key, value in values.items() if value is not None}
    dropped = values.keys() - given.keys()
    kept = {key: value for key, value in tables.get(like, {}).items() if key not in dropped}
    definition = {**experiment.definition, "sizes": {**tables, name: {**kept, **given}}}
    sizes = {**experiment.sizes, name: size}
    return replace(experiment, sizes=sizes, definition=definition), name


_UNPROBED = replace(ASSUMED, trial_seconds=OVERHEAD_SECONDS)


def expected_seconds(trials: Sequence[Trial]) -> float:
    """Return a first estimate of the duration of trials, on a disk that was not probed."""
    made = making_seconds([trial for trial in trials if not trial.workload.service], _UNPROBED)
    return made + sum(map(first_estimate_seconds, trials))


def first_estimate_seconds(trial: Trial) -> float:
    """Return the estimated duration of one trial, on a disk that was not probed.

    A workload that reads datasets is estimated by its reads, and any other by its longest time.
    """
    service = trial.workload.service
    if trial.datasets and not service:
        return trial_seconds(trial, _UNPROBED)
    load = service and service.warm_up_seconds + service.settle_seconds + LOAD_SECONDS
    return expected_trial_seconds(trial.max_seconds, trial.dataset_bytes, load or 0.0)
