"""The bpftrace programs of one machine state, and the tools that it starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.collectors.blocklat import BlockLatencyTracer
from pagecage.agent.collectors.bpftrace import FaultTracer
from pagecage.agent.collectors.tracer import BpftraceProcess
from pagecage.agent.system.child_processes import ToolProcesses


@dataclass(frozen=True)
class Tracers:
    """Both tracers. A machine state may be saved with some of them attached, because attaching takes seconds."""

    children: ToolProcesses
    faults: FaultTracer
    blocks: BlockLatencyTracer

    @classmethod
    def of(cls, spool: Path) -> Tracers:
        """Tracers that keep their scripts in `spool`; none is attached."""
        children = ToolProcesses(spool)
        return cls(children, FaultTracer(spool, children), BlockLatencyTracer(spool, children))

    @property
    def all(self) -> tuple[FaultTracer, BlockLatencyTracer]:
        """Every tracer, attached or not."""
        return self.faults, self.blocks

    def missing(self, wanted: Collection[str]) -> list[BpftraceProcess]:
        """The wanted tracers that were not begun yet."""
        return [tracer for tracer in self.all if tracer.name in wanted and not tracer.has_begun]

    def keep_only(self, wanted: Collection[str]) -> None:
        """Detach every tracer that is not wanted, so that it costs the measured program nothing."""
        for tracer in self.all:
            if tracer.name not in wanted:
                tracer.stop()

    def stop(self) -> None:
        """Detach all."""
        self.keep_only(())
