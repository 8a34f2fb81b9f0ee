"""Metrics of a store over HTTP, on the loopback interface, for Prometheus."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from kstore.errors import KstoreError
from kstore.store import LogStore


@contextmanager
def metrics_server(store: LogStore, port: int) -> Iterator[int]:
    """Answer http://127.0.0.1:PORT/metrics in threads of their own, until the block ends. Yields the port,
    which the system chooses for 0. OSError if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds that a client may take to ask

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._answer(404, "the metrics are at /metrics\n")
                return
            try:
                self._answer(200, store.metrics().prometheus())
            except (KstoreError, OSError) as e:
                self._answer(500, f"{e}\n")

        def _answer(self, status: int, text: str) -> None:
            content = text.encode()
            kind = (
                "text/plain; version=0.0.4; charset=utf-8" if status == 200 else "text/plain; charset=utf-8"
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print no line for each request."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, name="kstore metrics", daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
