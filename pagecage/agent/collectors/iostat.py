"""iostat with a period of one second. SIGTERM would cut off its JSON."""

from __future__ import annotations

import json

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ToolCollector
from pagecage.linux.block_device import stack_names
from pagecage.process import find_tool

ENVIRONMENT = {"S_TIME_FORMAT": "ISO", "LC_ALL": "C"}


class Iostat(ToolCollector):
    """`iostat -o JSON -x -t -y -d DEVICE... 1` into iostat.json, for all devices of the stack."""

    name = tool = "iostat"

    def __init__(self, context: CollectorContext) -> None:
        super().__init__(context, "iostat.json")
        command = ["iostat", "-o", "JSON", "-x", "-t", "-y", "-d"]
        self._argv = [*command, *stack_names(context.disk), "1"]

    def start(self) -> None:
        if find_tool("iostat"):
            with self._file.open("wb") as file:
                self._process = self._children.start(self._argv, stdout=file, env=ENVIRONMENT)

    def _dead(self, reason: str) -> CollectorResult:
        return CollectorResult("failed", reason, files=(self._file,))

    def _completed(self) -> CollectorResult:
        try:
            json.loads(self._file.read_text())
        except ValueError:
            return CollectorResult("partial", "iostat's JSON is cut off", files=(self._file,))
        return CollectorResult("ok", files=(self._file,))
