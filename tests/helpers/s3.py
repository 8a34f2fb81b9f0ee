"""The interface of S3 in this process, by moto's server."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def bucket_of(source: Path, place: str) -> Iterator[dict[str, Any]]:
    """The bucket kstore with a copy of a directory at `place` in it, in the block. The options that s3fs
    needs."""
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it says each request
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "a",
        "secret": "b",
        "endpoint_url": f"http://{host}:{port}",
        "client_kwargs": {"region_name": "eu-west-1"},
        "skip_instance_cache": True,
    }
    try:
        files = s3fs.S3FileSystem(**options)
        files.mkdir("kstore")
        files.put(str(source), f"kstore/{place}", recursive=True)
        yield options
        files.rm("kstore", recursive=True)  # the servers of a process share their buckets
    finally:
        server.stop()
