"""A file server in twenty lines: `OFFSET BYTES` a line from a client, whole batches back, never copied in
this process.

python examples/file_server.py DIRECTORY PORT
"""

import socketserver
import sys

import kstore


class Batches(socketserver.StreamRequestHandler):
    """One client."""

    def handle(self) -> None:
        for line in self.rfile:
            offset, size = map(int, line.split())
            LOG.refresh()  # takes in what was appended since; a reader shows what was there when it was opened
            span = LOG.span(offset, size)
            self.request.sendall(b"%d\n" % span.size)
            span.send(self.request)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    LOG = kstore.open(sys.argv[1])
    with socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[2])), Batches) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
