"""The host of the benchmark, its figures as ratios, and the goals that docs/TRUST.md states."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.plan import Plan
from pagecage.model.record import Record
from pagecage.model.trial import Package, Trial, Workload
from pagecage.planning.host_choice import choose_host
from pagecage.planning.run_plan import harness
from pagecage.process import Completed, run
from pagecage.runner.campaign import Campaign
from pagecage.runner.resource_needs import resource_needs
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.repeats import ranks_left_out
from pagecage.whole_files import write_whole
from reliability.campaign import tell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_TIMES_PEER = {"systemd-run": 2.0, "runexec": 1.0}
"""The time of a trial of nothing, as a multiple of each peer's."""
LEAST_SPEED = 0.99
"""The speed of a reader with collectors, as a share of its speed without."""
MOST_GROWTH = 1.5
"""The cost of one more trial in a plan, fleet or report that is ten or a hundred times as large,
as a multiple of its cost in the small one."""


DATASET_BYTES = 256 << 20
NATIVE_BYTES = 1 << 30
"""Length of the dataset without emulation: long enough for fio's clock of milliseconds."""


@dataclass(frozen=True)
class Figure:
    """One line of the result: a ratio, its numerator and denominator, and its aim."""

    name: str
    ratio: float
    low: float
    high: float
    aim: str
    met: bool
    samples: int
    says: str


class ReadingBed(Protocol):
    """A machine with the workloads and one dataset."""

    @property
    def dataset(self) -> str:
        """The path of the dataset on the machine."""

    @property
    def dataset_bytes(self) -> int:
        """The length of the dataset."""

    def run(self, *argv: str) -> Completed:
        """Run a command to its end on the machine. Raises PagecageError if it fails."""

    def program(self, name: str) -> str:
        """Return the path of a workload on the machine."""


@dataclass(frozen=True)
class NativeBed:
    """This machine, with a dataset and the folder of the workloads."""

    dataset: str
    programs: str
    dataset_bytes: int = NATIVE_BYTES

    def run(self, *argv: str) -> Completed:
        """Run a command to its end. Raises PagecageError if it fails."""
        return run(argv, timeout_seconds=300)

    def program(self, name: str) -> str:
        return f"{self.programs}/{name}"


@dataclass(frozen=True)
class Bed:
    host: Host
    dataset: str
    emulated: bool
    dataset_bytes: int = DATASET_BYTES

    def run(self, *argv: str) -> Completed:
        """Run a command to its end on the host. Raises PagecageError if it fails."""
        return run(self.host.command(argv), timeout_seconds=300)

    def program(self, name: str) -> str:
        """Return the path of a workload on the host."""
        return f"{self.host.spool_dir}/bin/{name}"


@contextmanager
def started(wish: str, packages: tuple[Package, ...] = ()) -> Iterator[Bed]:
    """The host, started, furnished and with these packages; ended whatever happens."""
    host, package = choose_host(wish, None, tell), make_agent_package(TOP)
    try:
        needs = replace(resource_needs(Plan("bench", (), {})), distribution_packages=packages)
        host.prepare(needs, tell)
        state = host.start()
        host.push(package.programs, f"{host.spool_dir}/bin")
        bed = Bed(host, f"{host.data_dir}/bench.bin", state.emulated)
        generate(bed)
        yield bed
    finally:
        host.stop()


def generate(bed: ReadingBed) -> None:
    size = ("--size-bytes", str(bed.dataset_bytes))
    bed.run(bed.program("pcgen"), "--out", bed.dataset, *size, "--seed", "1")


_UNCAGED = Cage(UNCAGED, {})


def make_trial(trial_id: str, workload: Workload, cage: Cage = _UNCAGED, **settings: Any) -> Trial:
    """Return a trial of the benchmark; `settings` are other fields of a trial."""
    place = {"experiment": "bench", "treatment": {}, "repeat": 1, "block": 1, "position": 0}
    return Trial(trial_id=trial_id, workload=workload, cage=cage, **{**place, **settings})


def make_plan(trials: Iterable[Trial], name: str = "bench", fresh: str = "never") -> Plan:
    run_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{name}"
    return Plan(run_id, tuple(trials), {"experiment": name, "fresh": fresh, "harness": harness()})


def run_plan(wish: str, plan: Plan) -> RunFolder:
    """Run a plan on a host of its own."""
    folder = RunFolder.create(scratch(), plan)
    host, package = choose_host(wish, None, tell), make_agent_package(TOP)
    Campaign(host, plan, folder, package, _tell_event).run()
    return folder


def _tell_event(event: Mapping[str, Any]) -> None:
    if event["event"] in ("step", "trial"):
        tell(str(event.get("text") or event.get("trial_id")))


def ratio_of_pairs(
    numerators: Sequence[float], denominators: Sequence[float]
) -> tuple[float, float, float]:
    """Return the median of the pairwise ratios and its interval."""
    return median_with_interval([a / b for a, b in zip(numerators, denominators, strict=True)])


def median_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, with the range that contains the true median in 95 of 100 cases.

    The range follows from order statistics, which assume no distribution: for n values the k-th
    smallest and largest, k by the binomial distribution. Fewer than six values give their range.
    """
    ordered = sorted(values)
    k = ranks_left_out(len(ordered))
    return median(ordered), ordered[k], ordered[-1 - k]


def figure_of_pairs(
    name: str,
    numerators: list[float],
    denominators: list[float],
    says: str,
    *,
    least: float | None = None,
    most: float | None = None,
    least_low: float | None = None,
) -> Figure:
    """Return the median of the pairwise ratios, with one aim: for the ratio, or for its lower
    bound (`least_low`).
    """
    ratio, low, high = ratio_of_pairs(numerators, denominators)
    aim, met = "none set", True
    if least is not None:
        aim, met = f"{least:g} or more", ratio >= least
    elif most is not None:
        aim, met = f"{most:g} or less", ratio <= most
    elif least_low is not None:
        aim, met = f"lower bound {least_low:.3g} or more", low >= least_low
    return Figure(name, ratio, low, high, aim, met, len(denominators), says)


def by_turns(
    pairs: int, one: Callable[[], float], other: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Return so many figures of each of two sides, which alternate in going first.

    So a drift of the machine affects both alike.
    """
    found = (list[float](), list[float]())
    sides = ((one, found[0]), (other, found[1]))
    for number in range(pairs):
        for measured, kept in sides if number % 2 else reversed(sides):
            kept.append(measured())
    return found


def response_of(record: Record, name: str) -> float:
    """Return a response of a trial. Raises RuntimeError with the trial's end if it has none."""
    if not (value := record.response.get(name)):
        why = f"{record.outcome} in {record.phase}: {record.error}"
        raise RuntimeError(f"{record.trial_id} ended as {why}")
    return value


def spread_figure(
    name: str, values: Sequence[float], aim: str, is_met: Callable[[float], bool], says: str
) -> Figure:
    """Return the median of values with their range; `is_met` judges the median."""
    middle = median(values)
    return Figure(name, middle, min(values), max(values), aim, is_met(middle), len(values), says)


def single_figure(name: str, value: float, aim: str, met: bool, says: str) -> Figure:
    """Return a figure that was measured once."""
    return Figure(name, value, value, value, aim, met, 1, says)


def growth_figure(name: str, growth: float, says: str, most: float = MOST_GROWTH) -> Figure:
    aim = f"{most:g} or less"
    return Figure(name, growth, growth, growth, aim, growth <= most, 1, says)


def keep(name: str, rows: Iterable[DataclassInstance]) -> None:
    """Write rows as NAME.json of the scratch folder, from where `reliability.costs` reads them."""
    (scratch() / f"{name}.json").write_text(json.dumps([asdict(one) for one in rows], indent=1))


def scratch() -> Path:
    """Return the folder of the benchmark's own runs: in the build folder, not among the user's
    runs.
    """
    return TOP / "build" / "bench"


class Session:
    """A host that is started when a part first needs it, and ended before a part starts its own."""

    def __init__(self, wish: str) -> None:
        self.wish = wish
        self.about: dict[str, Any] = {"host": None, "emulated": None}
        self._bed: Bed | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.leave()

    def bed(self) -> Bed:
        """Return the started host. Raises PagecageError if no host can serve."""
        if self._bed is None:
            self._bed = self._ending.enter_context(started(self.wish))
            self.about = {"host": self._bed.host.name, "emulated": self._bed.emulated}
        return self._bed

    def leave(self) -> None:
        self._bed = None
        self._ending.close()


def show(figure: Figure) -> None:
    sys.stdout.write(line(figure) + "\n")
    sys.stdout.flush()


def line(figure: Figure) -> str:
    """Format a figure as a line: ratio, interval if there is one, aim, and its parts."""
    interval = f"[{figure.low:.3f}, {figure.high:.3f}]" if figure.samples > 1 else ""
    mark = "" if figure.met else "  MISSED"
    return (
        f"{figure.name:<30} {figure.ratio:7.3f} {interval:<17} aim: {figure.aim:<25}"
        f" {figure.says}{mark}"
    )


class Results:
    """The figures of each part, with time and host. Parts measured earlier stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, dict[str, Any]] = _earlier(path)
        self.count = 0

    def begin(self, part: str, harness: Mapping[str, Any]) -> None:
        """Begin a part; its first figure replaces its earlier ones."""
        self._entry: dict[str, Any] = {"complete": False, "harness": harness, "figures": []}
        self._name = part

    def add(self, figure: Figure, about: Mapping[str, Any]) -> None:
        self._entry |= {**about, "unix_seconds": time.time()}
        self._entry["figures"].append(asdict(figure))
        self._parts[self._name] = self._entry
        self.count += 1
        self._write()

    def complete(self) -> None:
        self._entry["complete"] = True
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({"parts": self._parts}, indent=1) + "\n")


def _earlier(path: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of an earlier benchmark; empty if there is none or its format differs."""
    try:
        return dict(json.loads(path.read_text())["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
