"""The real agent, as the zipapp that travels, on the fake machine: `agent_on_fakes.py AGENT.PYZ MACHINE run`.

Everything outside the agent is the test's: where cgroups, sysfs and systemd's drop-ins lie.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(agent: str, root: str, *words: str) -> int:
    """Import the agent from the zipapp alone, turn it to the fake machine, and let it run."""
    sys.path[:0] = [agent]
    import pagecage  # noqa: PLC0415 - from the zipapp, which has just become the place to look

    assert str(pagecage.__path__[0]).startswith(agent), pagecage.__path__
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from tests.fake_host.machine import Machine  # noqa: PLC0415 - imports the agent

    machine = Machine(Path(root))
    os.environ |= machine.environment()
    machine.stand_in(setattr)
    from pagecage.agent.main import main as agent_main  # noqa: PLC0415

    return agent_main(list(words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
