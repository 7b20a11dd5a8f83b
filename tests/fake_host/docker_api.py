"""A fake Docker HTTP API: POST /containers/create, as the fake command's `create`."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

_FLAGS = {
    "ReadBps": "read-bps",
    "WriteBps": "write-bps",
    "ReadIOps": "read-iops",
    "WriteIOps": "write-iops",
}


class _Handler(BaseHTTPRequestHandler):
    bodies: ClassVar[list[dict[str, Any]]]
    created: ClassVar[Path]
    refuses: ClassVar[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        if self.refuses:
            self._answer(400, {"message": self.refuses})
            return
        self.created.write_text("\n".join(words_of(self.path.rpartition("=")[2], body)) + "\n")
        self._answer(201, {"Id": "0123abcd", "Warnings": []})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        """Discard the message."""


def words_of(name: str, body: dict[str, Any]) -> list[str]:
    """Return the same container as arguments of the command line."""
    host = body["HostConfig"]
    words = [f"--name={name}", f"--cgroup-parent={host['CgroupParent']}"]
    if "Memory" in host:
        words += [f"--memory={host['Memory']}", f"--memory-swap={host['MemorySwap']}"]
    for key, flag in _FLAGS.items():
        words += [
            f"--device-{flag}={one['Path']}:{one['Rate']}"
            for one in host.get(f"BlkioDevice{key}", ())
        ]
    return [*words, body["Image"], *body["Cmd"]]


@contextmanager
def docker_api(path: Path, created: Path, refuses: str = "") -> Iterator[list[dict[str, Any]]]:
    """Listen at a socket; return the requests received so far."""
    bodies: list[dict[str, Any]] = []
    handler = type(
        "Handler", (_Handler,), {"bodies": bodies, "created": created, "refuses": refuses}
    )
    with socketserver.UnixStreamServer(str(path), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield bodies
        finally:
            server.shutdown()
            thread.join()
            path.unlink()
