"""The real agent, as the copied zipapp, on the fake machine: `agent_on_fakes.py AGENT.PYZ MACHINE
run`.

Everything outside the agent belongs to the test: the paths of cgroups, sysfs and systemd's
drop-ins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(agent: str, root: str, *words: str) -> int:
    """Import the agent from the zipapp alone, point it at the fake machine, and run it.

    The imports are here because each depends on sys.path at that point.
    """
    sys.path[:0] = [agent]
    import pagecage

    assert str(pagecage.__path__[0]).startswith(agent), pagecage.__path__
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from tests.fake_host.machine import Machine

    machine = Machine(Path(root))
    os.environ |= machine.environment()
    machine.agent_pid.write_text(str(os.getpid()))
    machine.stand_in(setattr)
    from pagecage.agent.main import main as agent_main

    return agent_main(list(words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
