"""A web server of a directory, with ranges: what a log in an object store is to Spark's processes."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        file = Path(self.translate_path(self.path))
        if wanted is None or not file.is_file():
            super().do_GET()
            return
        start, end = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
        data = file.read_bytes()
        part = data[start : end + 1]
        self.server.bytes_sent += len(part)  # type: ignore[attr-defined]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: Any) -> None:
        pass


class Web:
    """The server's `url`, and how many bytes of files it has sent."""

    def __init__(self, server: http.server.ThreadingHTTPServer) -> None:
        self._server = server
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    def bytes_sent(self) -> int:
        return self._server.bytes_sent  # type: ignore[attr-defined,no-any-return]


@contextmanager
def serving(directory: Path) -> Iterator[Web]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Handler, directory=str(directory))
    )
    server.bytes_sent = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Web(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
