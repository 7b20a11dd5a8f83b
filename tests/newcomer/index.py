"""A local package index: a simple repository (PEP 503) that forwards to the public one."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PUBLIC = "https://pypi.org/simple"


@dataclass
class Index:
    """Its address, and the projects requested from it."""

    url: str
    asked: set[str] = field(default_factory=set)


@contextmanager
def package_index() -> Iterator[Index]:
    """Serve an index for the duration of the block."""
    server = _Server(("127.0.0.1", 0), _Pages)
    server.index = Index(f"http://127.0.0.1:{server.server_port}/simple")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    index: Index


class _Pages(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer with a project's page; its files are at the public index."""
        project = self.path.strip("/").split("/")[-1]
        self.server.index.asked.add(project)
        with urllib.request.urlopen(f"{PUBLIC}/{project}/", timeout=60) as answer:
            content, kind = answer.read(), answer.headers["Content-Type"]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Discard the message."""
