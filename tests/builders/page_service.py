"""A server that reads a page of a file for each request, and a load that counts its answers."""

from __future__ import annotations

import random
from pathlib import Path

SERVER = """
import os, socketserver, sys

file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
pages = os.fstat(file).st_size // 4096


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            page = int(line) * 2654435761 % pages
            self.wfile.write(b"%d\\n" % len(os.pread(file, 4096, page * 4096)))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


with Server(("127.0.0.1", int(sys.argv[2])), Connection) as server:
    server.serve_forever()
"""
"""Requests name consecutive numbers; their pages are all different and in no order."""

LOAD = """
import json, os, socket, sys, time

port, seconds, seen = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
first = int(open(seen).read()) if os.path.exists(seen) else 0
server = socket.create_connection(("127.0.0.1", port))
answers, times = server.makefile("rb"), []
try:
    while sum(times) < seconds:
        began = time.monotonic()
        server.sendall(b"%d\\n" % (first + len(times)))
        with open(seen, "w") as file:
            file.write(str(first + len(times) + 1))
        assert answers.readline() == b"4096\\n"
        times.append(time.monotonic() - began)
finally:
    print("tps = %.2f" % (len(times) / max(sum(times), 1e-9)))
print(json.dumps({"latency": {"average_ms": 1000 * sum(times) / len(times)}}))
"""
"""Its third argument is a file that keeps the next page, so that no page is asked for twice."""


def write(folder: Path, data_bytes: int) -> tuple[str, str, str]:
    """Write server, load and data; return their paths."""
    paths = tuple(str(folder / name) for name in ("server.py", "load.py", "cold.bin"))
    for path, content in zip(paths, (SERVER, LOAD), strict=False):
        Path(path).write_text(content)
    Path(paths[2]).write_bytes(random.Random(1).randbytes(data_bytes))
    return paths[0], paths[1], paths[2]
