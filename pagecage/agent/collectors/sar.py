"""sar with a period of one second: disk, paging, memory and I/O."""

from __future__ import annotations

import time

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ToolCollector
from pagecage.agent.collectors.iostat import ENVIRONMENT
from pagecage.process import find_tool, last_line, run


class Sar(ToolCollector):
    """`sar -o sar.bin 1`, converted by `sadf` into sar.json."""

    name = tool = "sar"

    def __init__(self, context: CollectorContext) -> None:
        super().__init__(context, "sar.bin")
        self._disk = context.disk.name

    def start(self) -> None:
        if find_tool("sar"):
            argv = ["sar", "-o", str(self._file), "1"]
            self._process = self._children.start(argv, env=ENVIRONMENT)

    def _completed(self) -> CollectorResult:
        options = ["--", "-d", "-r", "-B", "-b", f"--dev={self._disk}"]
        # sar's child sadc may still be writing its last block after sar has exited.
        for _ in range(3):
            sadf = ["sadf", "-j", str(self._file), *options]
            done = run(sadf, env=ENVIRONMENT, check=False, timeout_seconds=30)
            if done.ok:
                json = self._file.with_suffix(".json")
                json.write_text(done.stdout)
                return CollectorResult("ok", files=(self._file, json))
            time.sleep(0.1)
        reason = f"sadf cannot read sar.bin: {last_line(done.stderr, 'no reason given')}"
        return CollectorResult("partial", reason, files=(self._file,))
