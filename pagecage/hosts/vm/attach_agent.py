"""Runs in the guest: hands this process's standard streams to the agent in standby, or becomes a new agent.

  python3 -I -S -c SCRIPT SOCKET AGENT

Sent to the guest as text. It imports as little as it can, because each import takes an emulated CPU tens of
milliseconds. Exit status: that of the agent; 1 where the agent ended without one.
"""

import os
import socket
import sys


def main(waiting: str, agent: str) -> int:
    """Ask the agent that waits at this socket; where none does, become `agent`."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(waiting)
            socket.send_fds(line, [b"\0"], [0, 1, 2])
            return (line.recv(1) or b"\1")[0]
    except (FileNotFoundError, ConnectionRefusedError):
        os.execvp("python3", ["python3", agent, "run"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
