"""Metrics of a store over HTTP, on the loopback interface, for Prometheus."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from kstore.errors import KstoreError
from kstore.store import LogStore


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, store: LogStore) -> None:
        self.store = store
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback for a client that has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds that a client may take to ask
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, "the metrics are at /metrics\n")
            return
        try:
            status, text = 200, self.server.store.metrics().prometheus()
        except (KstoreError, OSError) as e:
            status, text = 500, f"{e}\n"
        self._answer(status, text)

    do_HEAD = do_GET

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        kind = "text/plain; version=0.0.4; charset=utf-8" if status == 200 else "text/plain; charset=utf-8"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""


@contextmanager
def metrics_server(store: LogStore, port: int) -> Iterator[int]:
    """Answer http://127.0.0.1:PORT/metrics in threads of their own, until the block ends. Yields the port,
    which the system chooses for 0. OSError if the port is taken."""
    try:
        opened = _Server(port, store)
    except OSError as e:
        raise OSError(e.errno, e.strerror, f"127.0.0.1:{port}") from None
    with opened as server:
        thread = Thread(target=server.serve_forever, name="kstore metrics", daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
