"""A server that reads a page of a file for each request, and a load that counts its answers."""

from __future__ import annotations

import random
from pathlib import Path

SERVER = r"""
import os, socketserver, sys

file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
pages = os.fstat(file).st_size // 4096


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            page = int(line) % pages
            self.wfile.write(b"%d\n" % len(os.pread(file, 4096, page * 4096)))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


with Server(("127.0.0.1", int(sys.argv[2])), Connection) as server:
    server.serve_forever()
"""
"""Its arguments are the file and a port."""

LOAD = r"""
import json, random, socket, sys, threading, time

port, seconds, connections = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
times, began = [], time.monotonic()


def ask():
    server = socket.create_connection(("127.0.0.1", port))
    answers = server.makefile("rb")
    while time.monotonic() - began < seconds:
        sent = time.monotonic()
        server.sendall(b"%d\n" % random.randrange(1 << 40))
        assert answers.readline() == b"4096\n"
        times.append(time.monotonic() - sent)


threads = [threading.Thread(target=ask) for _ in range(connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("tps = %.2f" % (len(times) / (time.monotonic() - began)))
print(json.dumps({"latency": {"average_ms": 1000 * sum(times) / len(times)}}))
"""
"""Its arguments are a port, the seconds that it takes, and how many requests wait at a time."""


def write(folder: Path, data_bytes: int) -> tuple[str, str, str]:
    """Write server, load and data; return their paths."""
    paths = tuple(str(folder / name) for name in ("server.py", "load.py", "cold.bin"))
    for path, content in zip(paths, (SERVER, LOAD), strict=False):
        Path(path).write_text(content)
    Path(paths[2]).write_bytes(random.Random(1).randbytes(data_bytes))
    return paths[0], paths[1], paths[2]
