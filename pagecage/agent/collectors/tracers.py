"""The bpftrace processes of one machine state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.collectors.blocklat import BlockLatencyTracer
from pagecage.agent.collectors.bpftrace import FaultTracer
from pagecage.agent.collectors.tracer import BpftraceProcess
from pagecage.linux.child_processes import ToolProcesses


@dataclass(frozen=True)
class Tracers:
    """Both tracers. A machine state can be saved with them attached, which takes seconds."""

    children: ToolProcesses
    faults: FaultTracer
    blocks: BlockLatencyTracer

    @classmethod
    def of(cls, spool: Path) -> Tracers:
        children = ToolProcesses(spool)
        return cls(children, FaultTracer(spool, children), BlockLatencyTracer(spool, children))

    @property
    def all(self) -> tuple[FaultTracer, BlockLatencyTracer]:
        return self.faults, self.blocks

    def missing(self, wanted: Collection[str]) -> list[BpftraceProcess]:
        return [tracer for tracer in self.all if tracer.name in wanted and not tracer.has_begun]

    def keep_only(self, wanted: Collection[str]) -> None:
        """Detach all other tracers, because an attached tracer slows the measured program down."""
        for tracer in self.all:
            if tracer.name not in wanted:
                tracer.stop()

    def stop(self) -> None:
        self.keep_only(())
