"""Output of ansible-playbook(1) for pagecage/ansible.py: one line of JSON per finished task.

Collections have such a plugin too, but they take 256 MB.
"""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: pagecage_events
type: stdout
short_description: One line of JSON per finished task and host
description:
  - Each line names its event in C(_event). The last one has the statistics of all hosts.
options: {}
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Prints results of tasks, and the statistics at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "pagecage_events"

    def v2_runner_on_ok(self, result: Any) -> None:
        """Print the result of a task."""
        self._print_result("v2_runner_on_ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ARG002 - Ansible's interface
        """Print the result of a failed task, also of one that may fail."""
        self._print_result("v2_runner_on_failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Print why a host could not be reached."""
        self._print_result("v2_runner_on_unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the number of changes and failures of each host."""
        hosts = sorted(stats.processed)
        self._print("v2_playbook_on_stats", stats={host: stats.summarize(host) for host in hosts})

    def _print_result(self, event: str, result: Any) -> None:
        task = {"name": result.task.get_name()}
        hosts = {result.host.get_name(): json.loads(self._dump_results(result.result))}
        self._print(event, task=task, hosts=hosts)

    def _print(self, event: str, **values: Any) -> None:
        self._display.display(json.dumps({"_event": event, **values}))
