"""A host to measure on, and the form in which every figure is told: as a ratio, with what it is held against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pagecage.checkout import TOP
from pagecage.cli.run_plan import choose_host
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import Host
from pagecage.planning.plan import Plan
from pagecage.process import Completed, run
from pagecage.runner.campaign import resource_needs
from pagecage.verdicts.median_interval import ranks_left_out
from tests.bench.say import say

DATASET_BYTES = 256 << 20


@dataclass(frozen=True)
class Figure:
    """One line of the result: a ratio, what it divides by what, and the aim that it was given."""

    name: str
    ratio: float
    low: float
    high: float
    aim: str
    met: bool
    samples: int
    says: str


@dataclass(frozen=True)
class Bed:
    """A started host with the workloads and one dataset on it."""

    host: Host
    dataset: str
    emulated: bool

    def run(self, *argv: str) -> Completed:
        """Run to the end on the host; raises PagecageError when it fails."""
        return run(self.host.command(argv), timeout_seconds=300)

    def program(self, name: str) -> str:
        """Where a workload lies on the host."""
        return f"{self.host.spool_dir}/bin/{name}"


@contextmanager
def started(wish: str) -> Iterator[Bed]:
    """The host, started and furnished; ended whatever happens."""
    host, package = choose_host(wish, None, say), make_agent_package(TOP)
    try:
        host.prepare(resource_needs(Plan("bench", (), {})), say)
        state = host.start()
        host.push(package.programs, f"{host.spool_dir}/bin")
        bed = Bed(host, f"{host.data_dir}/bench.bin", state.emulated)
        bed.run(bed.program("pcgen"), "--out", bed.dataset, "--size-bytes", str(DATASET_BYTES), "--seed", "1")
        yield bed
    finally:
        host.stop()


def ratio_of_pairs(numerators: list[float], denominators: list[float]) -> tuple[float, float, float]:
    """Median of the pairwise ratios with the range that holds the true median in 95 of 100 cases.

    Order statistics, which assume no shape: for n pairs the k-th smallest and largest, k by the binomial distribution.
    """
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    k = ranks_left_out(len(ratios))
    return median(ratios), ratios[k], ratios[-1 - k]


def scratch() -> Path:
    """Where the benchmark's own runs go: beside what was built, not among the user's runs."""
    return TOP / "build" / "bench"
