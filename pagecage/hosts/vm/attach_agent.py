"""Script in the guest that hands its standard streams to the agent in standby, or becomes an agent.

  python3 -I -S -c SCRIPT SOCKET AGENT

Sent to the guest as text. It imports little, because each import takes an emulated CPU tens of
milliseconds. The exit status is the agent's, or 1 if the agent ended without one.
"""

import os
import socket
import sys


def main(socket_path: str, agent: str) -> int:
    """Pass the standard streams to the agent at this socket; without one, execute `agent`."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(socket_path)
            socket.send_fds(connection, [b"\0"], [0, 1, 2])
            return (connection.recv(1) or b"\1")[0]
    except (FileNotFoundError, ConnectionRefusedError):
        os.execvp("python3", ["python3", agent, "run"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
