"""Logs under URLs: the rows of the local log, few requests, and errors that tell what happened."""

from __future__ import annotations

import functools
import http.server
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.arrow
import kstore.libraries
import kstore.polars
from tests.helpers.processes import run_command

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two segments, of 17 and 14 MB."""
    path = tmp_path_factory.mktemp("remote") / "orders-0"
    with kstore.open(path, "a", segment_bytes=16 << 20) as log:
        for first in range(0, 30_000, 500):
            numbers = range(first, first + 500)
            log.extend(
                [b"%01000d" % i for i in numbers],
                keys=[b"user-%d" % (i % 7) for i in numbers],
                timestamps=[1_711_530_000_000 + 1000 * i for i in numbers],
            )
    return path


class Requests:
    """The requests of a file system, counted at its two calls."""

    def __init__(self, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists = 0
        self.ranges: list[tuple[str, int, int]] = []
        kind = type(files)
        ls, cat_file = kind.ls, kind.cat_file

        def counted_ls(own: Any, *args: Any, **given: Any) -> Any:
            self.lists += 1
            return ls(own, *args, **given)

        def counted_cat(own: Any, path: str, start: Any = None, end: Any = None, **given: Any) -> Any:
            self.ranges.append((path, start, end))
            return cat_file(own, path, start=start, end=end, **given)

        monkeypatch.setattr(kind, "ls", counted_ls)
        monkeypatch.setattr(kind, "cat_file", counted_cat)


@pytest.fixture
def memory(local: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Requests]]:
    files = fsspec.filesystem("memory")
    for file in local.iterdir():
        files.pipe(f"/bucket/orders-0/{file.name}", file.read_bytes())
    yield "memory://bucket/orders-0", Requests(files, monkeypatch)
    files.rm("/bucket", recursive=True)


def test_it_is_the_local_log(local: Path, memory: tuple[str, Requests]) -> None:
    url, _ = memory
    here, there = kstore.open(local), kstore.open(url)
    assert there.log_end_offset == here.log_end_offset
    assert there.get(17_000) == here.get(17_000)
    assert there.find(timestamp=1_711_530_000_000 + 20_000_500) == here.find(
        timestamp=1_711_530_000_000 + 20_000_500
    )
    assert list(there) == list(here)
    assert there.last(b"user-3") == here.last(b"user-3")
    assert there.scan(threads=2).to_arrow() == here.scan().to_arrow()


def test_requests_are_few(local: Path, memory: tuple[str, Requests]) -> None:
    url, requests = memory
    size = sum(segment.size for segment in kstore.open(local).segments)
    log = kstore.open(url)
    assert log.log_end_offset == 30_000
    assert sum(end - start for _, start, end in requests.ranges) < 1 << 17
    assert sum(len(batch) for batch in log.scan()) == 30_000
    assert requests.lists == 1
    assert 1 + len(requests.ranges) <= 2 + 2 * len(log.segments) + size / (8 << 20)
    before = len(requests.ranges)
    assert sum(len(batch) for batch in log.scan()) == 30_000  # nothing is read twice
    assert len(requests.ranges) == before


@pytest.mark.parametrize("read", ["scan", "polars", "duckdb"])
def test_a_hundredth_of_the_time_reads_its_part(local: Path, memory: tuple[str, Requests], read: str) -> None:
    url, requests = memory
    pytest.importorskip(read if read != "scan" else "pyarrow")
    size = sum(segment.size for segment in kstore.open(local).segments)
    since = 1_711_530_000_000 + 14_000_000
    if read == "scan":
        rows = kstore.open(url).scan(["value"], since=since, until=since + 300_000, in_order=True)
        count = sum(map(len, rows))
    elif read == "polars":
        pl = kstore.libraries.library("polars")
        frame = kstore.polars.scan(url, in_order=True, timestamps="ms").filter(
            pl.col("timestamp") >= since, pl.col("timestamp") < since + 300_000
        )
        assert f'SELECTION: (col("timestamp") >= {since}) & (col("timestamp") < ' in frame.explain()
        count = len(frame.collect())
    else:
        dataset = kstore.arrow.dataset(url, in_order=True, timestamps="ms")  # noqa: F841
        query = f'from dataset where "timestamp" >= {since} and "timestamp" < {since + 300_000}'
        duckdb = kstore.libraries.library("duckdb")
        plan = re.sub(r"[^\w=<>]", "", duckdb.sql(f"explain {query}").fetchall()[0][1])
        assert f"timestamp>={since}" in plan, plan
        requests.ranges.clear()
        count = len(duckdb.sql(query).fetchall())
    assert count == 300
    assert sum(end - start for _, start, end in requests.ranges) < 0.03 * size


def test_what_is_deleted_or_torn_is_read_as_on_a_disk(tmp_path: Path) -> None:
    """Of a store, whose checkpoints lie around the partition."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("orders")
        store.extend("orders", [b"%d" % i for i in range(100)])
        store.log("orders").delete_records(30)
    (segment,) = (tmp_path / "orders-0").glob("*.log")
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[:50])
    files = fsspec.filesystem("memory")
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != ".kafka_cleanshutdown":
            files.pipe(f"/torn/{file.relative_to(tmp_path)}", file.read_bytes())
    for log in (kstore.open("memory://torn/orders-0"), kstore.LogStore("memory://torn").log("orders")):
        assert [record.offset for record in log] == list(range(30, 100))
        assert "torn" in repr(log)
    files.rm("/torn", recursive=True)


@pytest.fixture(scope="module")
def web(local: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server of the directory around the log, and the faults of its next answers."""
    faults: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        """Files with ranges, which the standard handler does not have. Below /locked a header is required."""

        def translate_path(self, path: str) -> str:
            return super().translate_path(path.removeprefix("/locked"))

        def send_head(self) -> Any:
            if self.path.startswith("/locked") and self.headers.get("X-Token") != "t":
                return self.send_error(403)
            return super().send_head()

        def do_GET(self) -> None:
            fault = faults.pop() if faults else ""
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return None
            if fault == "503":
                return self.send_error(503)
            if fault == "slow":
                time.sleep(0.3)
            wanted = self.headers.get("Range")
            file = Path(self.translate_path(self.path))
            if wanted is None or not file.is_file():
                return super().do_GET()
            start, end = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
            data = file.read_bytes()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
            self.send_header("Content-Length", str(len(data[start : end + 1])))
            self.end_headers()
            part = data[start : end + 1]
            self.wfile.write(part if fault != "short" else part[: len(part) // 2])
            self.close_connection = fault == "short"
            return None

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(local.parent))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", faults
    server.shutdown()
    thread.join()
    server.server_close()


def test_http(web: tuple[str, list[str]]) -> None:
    url, faults = web
    log = kstore.open(f"{url}/orders-0/")
    for offset, given in enumerate(
        (["reset"], ["503", "503"], ["slow"], ["short"], ["reset", "503", "short"], ["503"] * 4)
    ):
        faults[:] = given
        if len(given) == 4:  # the attempts of a request
            with pytest.raises(OSError, match=f"{url}/orders-0/0+.log: 503"):
                log.get(offset * 1000)
        assert log.get(offset * 1000).value == b"%01000d" % (offset * 1000)
        assert not faults


def test_an_outage_is_not_taken_for_absence(web: tuple[str, list[str]]) -> None:
    """Each of the first requests of an opening fails for a while, or for good; no partition is left out."""
    url, faults = web
    options = {"skip_instance_cache": True}
    for working in range(12):
        for fault, times in (("503", 3), ("reset", 3), ("503", 4)):
            faults[:] = [fault] * times + ["none"] * working
            error: OSError | None = None
            try:
                store = kstore.LogStore(url, storage_options=options)
                assert store.log("orders").get(5000).value == b"%01000d" % 5000
            except OSError as e:
                error = e
            faults.clear()
            if error is not None:
                assert (times, type(error), "503" in str(error)) == (4, OSError, True), error
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}/orders-0"
    with pytest.raises(OSError, match=f"{nobody}.*Connect"):
        kstore.open(nobody, storage_options=options)
    with pytest.raises(kstore.LogNotFoundError, match="nothing is at"):
        kstore.open(f"{url}/payments-0", storage_options=options)


def test_options_of_the_storage(web: tuple[str, list[str]], local: Path) -> None:
    """Each way in takes them; commands take them from the environment, as fsspec does."""
    directory = f"{web[0]}/locked"
    options = {"headers": {"X-Token": "t"}, "skip_instance_cache": True}
    log = kstore.open(f"{directory}/orders-0", storage_options=options)
    store = kstore.LogStore(directory, storage_options=options)
    assert log.get(20_000) == store.log("orders").get(20_000) == kstore.open(local).get(20_000)
    for make in (kstore.polars.scan, kstore.arrow.dataset):
        assert make(directory, "orders", storage_options=options).head(1) is not None
    variables = {"FSSPEC_HTTP": '{"headers": {"X-Token": "t"}}'}
    done = run_command("get", f"{directory}/orders-0", "--key", "user-3", **variables)
    assert done.returncode == 0, done.stderr
    with pytest.raises(OSError, match=r"/locked.*403"):
        kstore.open(f"{directory}/orders-0", storage_options={"skip_instance_cache": True})
    for refuse in (kstore.open, kstore.LogStore, kstore.polars.scan, kstore.arrow.dataset):
        with pytest.raises(TypeError, match="storage_options are those of a URL"):
            refuse(local, storage_options=options)


@pytest.mark.parametrize(
    "command",
    [
        ["records", "--start", "20000", "--stop", "20003", "--format", "jsonl"],
        ["find", "--offset", "20000"],
        ["get", "--key", "user-3"],
        ["stat"],
        ["check"],
    ],
    ids=lambda command: command[0],
)
def test_commands_take_urls(web: tuple[str, list[str]], local: Path, command: list[str]) -> None:
    name, *options = command
    here = run_command(name, str(local), *options)
    there = run_command(name, f"{web[0]}/orders-0", *options)
    assert there.returncode == here.returncode == 0, there.stderr
    paths = [re.sub(r"\S*/orders-0", "orders-0", each.stdout) for each in (there, here)]
    assert [re.sub(r"[0-9.]+ m?s\b", "", text) for text in paths[:1]] == [
        re.sub(r"[0-9.]+ m?s\b", "", text) for text in paths[1:]
    ]


def test_a_store_and_its_frames(local: Path, memory: tuple[str, Requests]) -> None:
    directory = memory[0].rpartition("/")[0]
    here, there = kstore.LogStore(local.parent), kstore.LogStore(directory)
    assert there.topics == here.topics == {"orders": [0]}
    assert there.log("orders").get(17_000) == here.log("orders").get(17_000)
    polars = pytest.importorskip("polars")
    for url, topic in ((directory, "orders"), (memory[0], None)):
        frame = kstore.polars.scan(url, topic).filter(polars.col("offset") >= 29_990)
        assert frame.collect().equals(
            kstore.polars.scan(local).filter(polars.col("offset") >= 29_990).collect()
        )
    with pytest.raises(kstore.KstoreError, match=r"memory://bucket.* is remote"):
        there.follow()
    with pytest.raises(kstore.KstoreError, match=r"memory://bucket.* is remote"):
        there.log("orders").follow()
    with pytest.raises((OSError, kstore.KstoreError)), there.cursor("group", ["orders"]) as cursor:
        cursor.commit()
    with pytest.raises(ValueError, match="can only be read"):
        kstore.LogStore(directory, mode="a")


def test_what_fails_is_an_error(memory: tuple[str, Requests], monkeypatch: pytest.MonkeyPatch) -> None:
    url, _ = memory
    files = fsspec.filesystem("memory")
    kind, whole = type(files), type(files).cat_file
    log = kstore.open(url)
    attempts = []

    def failing(own: Any, path: str, **given: Any) -> bytes:
        attempts.append(path)
        if len(attempts) < 3:
            raise ConnectionResetError("reset")
        return whole(own, path, **given)

    monkeypatch.setattr(kind, "cat_file", failing)
    assert log.get(3).offset == 3  # tried again
    monkeypatch.setattr(kind, "cat_file", lambda own, path, **given: whole(own, path, **given)[:-1])
    with pytest.raises(OSError, match="were asked for"):
        log.get(20_000)
    monkeypatch.setattr(kind, "cat_file", whole)
    assert log.get(20_000).offset == 20_000
    files.rm("/bucket/orders-0/00000000000000000000.log")
    with pytest.raises(OSError, match="was removed"):
        log.get(6_000)


def test_errors_of_a_library(memory: tuple[str, Requests], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own exceptions, such as those of aiohttp for a status, are tried again and end as OSError."""
    url, _ = memory
    kind = type(fsspec.filesystem("memory"))
    log = kstore.open(url)
    attempts = []

    class StatusError(Exception):
        pass

    def failing(own: Any, path: str, **given: Any) -> Any:
        attempts.append(path)
        raise StatusError("503, message='Service Unavailable'")

    monkeypatch.setattr(kind, "cat_file", failing)
    with pytest.raises(OSError, match="503"):
        log.get(3)
    assert len(attempts) % 4 == 0
    monkeypatch.setattr(kind, "ls", failing)
    attempts.clear()
    with pytest.raises(OSError, match="503"):
        kstore.open(url)
    assert len(attempts) == 4


def test_a_page_is_no_log() -> None:
    """A server that answers every request with a page, for a login perhaps."""
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/page-0/00000000000000000000.log", b"<html>please log in</html>")
    with pytest.raises(OSError, match="is no log"):
        kstore.open("memory://bucket/page-0")


@pytest.mark.parametrize("call", ["follow", "refresh", "cursors", "share_groups"])
def test_what_cannot_work_is_refused(memory: tuple[str, Requests], call: str) -> None:
    url, _ = memory
    with pytest.raises(kstore.KstoreError, match="is remote"):
        getattr(kstore.open(url), call)()
    for mode in ("a", "r+"):
        with pytest.raises(ValueError, match="can only be read"):
            kstore.open(url, mode)  # type: ignore[call-overload]
    with pytest.raises((kstore.LogNotFoundError, FileNotFoundError)):
        kstore.open("memory://bucket/nothing-0")
