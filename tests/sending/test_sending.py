"""Slices to sockets: blocking, non-blocking, asyncio, TLS; a changing log; examples/file_server.py."""

import asyncio
import errno
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from kstore import Sent
from kstore.testing import failing
from tests.helpers.markers import transactional
from tests.helpers.processes import environment

BATCH = 4000
Pair = tuple[socket.socket, socket.socket]  # two ends of a connection
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]  # of a server and a client


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    """About 2 MB in segments of 300 KB."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=300_000, file_delete_delay_ms=0) as log:
        log.extend([b"%06d" % i + b"." * 200 for i in range(8000)], batch_bytes=BATCH)
        yield log


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        end, _ = server.accept()
    with client, end:
        yield end, client


def drain(sock: socket.socket, into: bytearray) -> threading.Thread:
    def run() -> None:
        while data := sock.recv(1 << 16):
            into.extend(data)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def received(pair: Pair, send: Callable[[socket.socket], Sent]) -> tuple[Sent, bytes]:
    into = bytearray()
    thread = drain(pair[1], into)
    try:
        sent = send(pair[0])
    finally:
        pair[0].shutdown(socket.SHUT_WR)
        thread.join(60)
    return sent, bytes(into)


def batches_of(data: bytes, path: Path) -> list[kstore.RecordBatch]:
    """What a client makes of the bytes."""
    path.mkdir()
    (path / "00000000000000000000.log").write_bytes(data)
    return list(kstore.open(path, recover=False).batches())


def test_a_blocking_socket_takes_all(log: kstore.LogWriter, pair: Pair) -> None:
    part = log.read(100, 250_000)
    sent, data = received(pair, part.send)
    assert sent == Sent(part.size, "sendfile")
    assert data == bytes(part)


def test_a_part_from_a_position_on(log: kstore.LogWriter, pair: Pair) -> None:
    part = log.read(0, 100_000)
    sent, data = received(pair, lambda sock: part.send(sock, 60_001))
    assert sent.size == 39_999
    assert data == bytes(part)[60_001:]
    with pytest.raises(ValueError, match="outside"):
        part.send(pair[0], 100_001)
    assert part.send(pair[0], 100_000) == Sent(0, "sendfile")


def test_several_segments_in_one_call(log: kstore.LogWriter, pair: Pair) -> None:
    span = log.span(0, 10 << 20)
    assert len(span.slices) == len(log.segments) > 4
    sent, data = received(pair, lambda sock: log.send(sock, 0, 10 << 20))
    assert sent == Sent(len(data), "sendfile")
    assert data == b"".join(Path(s.path).read_bytes()[: s.size] for s in log.segments) == bytes(span)
    assert [r.offset for r in span] == list(range(8000))


def test_resuming_a_span(log: kstore.LogWriter, pair: Pair) -> None:
    span = log.span(5, 700_000)
    pair[0].setblocking(False)
    into = bytearray()
    thread = drain(pair[1], into)
    at, calls = 0, 0
    while at < span.size:
        sent = span.send(pair[0], at)
        assert sent.path == "sendfile"
        at += sent.size
        calls += 1
        if sent.size == 0:
            select.select([], [pair[0]], [], 10)
    pair[0].shutdown(socket.SHUT_WR)
    thread.join(60)
    assert bytes(into) == bytes(span)


def test_a_full_non_blocking_socket_takes_no_more(log: kstore.LogWriter, pair: Pair) -> None:
    span = log.span(0, 10 << 20)
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    pair[0].setblocking(False)
    at = 0
    while size := span.send(pair[0], at).size:
        at += size
    assert at > 0
    assert at < span.size or span.size < 8 << 20  # the kernel's buffers may be large


def test_a_timeout(log: kstore.LogWriter, pair: Pair) -> None:
    a, b = socket.socketpair()
    with a, b:
        a.settimeout(0.05)
        sent = log.send(a, 0, 10 << 20)
        assert 0 < sent.size < 1_500_000
        with pytest.raises(TimeoutError):
            log.send(a, 0, 10 << 20)


def test_whole_batches(log: kstore.LogWriter, tmp_path: Path) -> None:
    sizes = [batch.size for batch in log.batches(0, 1000)]
    for size in (sizes[0], sizes[0] + sizes[1] - 1, sizes[0] + sizes[1], 50_000, 299_999):
        part = log.read(0, size, whole_batches=True)
        assert part.size <= size
        ends = {sum(sizes[:n]) for n in range(len(sizes))}
        assert part.size == max(end for end in ends if end <= size) or part.size > max(ends)
    assert log.read(0, 10, whole_batches=True).size == sizes[0]
    assert log.read(0, 10, whole_batches=True, min_one_message=False).size == 0
    for number, size in enumerate((1, 12_345, 333_333, 700_001)):
        span = log.span(7, size)
        found = batches_of(bytes(span), tmp_path / str(number))
        assert sum(batch.size for batch in found) == span.size
        assert span.size <= size or len(found) == 1


def test_a_wrong_index_does_not_mislead_the_cut(log: kstore.LogWriter, tmp_path: Path) -> None:
    log.close()
    index = Path(log.path, "00000000000000000000.index")
    entries = bytearray(index.read_bytes())
    for at in range(7, len(entries), 8):
        entries[at] ^= 3
    index.write_bytes(entries)
    other = kstore.open(log.path)
    ends, at = set(), 0
    for batch in other.segments[0].read_headers():
        at += int(batch["size"])
        ends.add(at)
    for size in range(10_000, 250_000, 7001):
        assert other.read(0, size, whole_batches=True).size == max(end for end in ends if end <= size)


def test_read_committed_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    records = [(-1, None, b"x" * 100, ())] * 3
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=2000) as log:
        log.extend([b"a" * 100] * 30, batch_bytes=300)
        log.append_batches(transactional(*records))
        log.extend([b"b" * 100] * 30, batch_bytes=300)
        stable = log.last_stable_offset()
        assert stable == 30 < log.log_end_offset
        span = log.span(0, 1 << 20, "read_committed")
        assert [r.offset for r in span] == list(range(30))
        assert [b.last_offset for b in batches_of(bytes(span), tmp_path / "got")][-1] == 29
        assert log.span(30, 1 << 20, "read_committed").size == 0
        assert log.read(30, isolation="read_committed", whole_batches=True).size == 0
    reader = kstore.open(tmp_path / "t-0")
    assert bytes(reader.span(0, 1 << 20, "read_committed")) == bytes(span)


def test_deleted_meanwhile(log: kstore.LogWriter, pair: Pair) -> None:
    span = log.span(0, 10 << 20)
    expected = bytes(span)
    log.configure(retention_bytes=1)
    assert sum(d.delete for d in log.retain()) > 3
    log.retain()
    assert not Path(span.slices[0].segment.path).exists()  # type: ignore[union-attr]
    sent, data = received(pair, span.send)
    assert sent.size == len(expected)
    assert data == expected
    with pytest.raises(kstore.OffsetOutOfRangeError):
        log.send(pair[0], 0)


@pytest.mark.parametrize("how", ["error", "half"])
def test_a_failing_call(log: kstore.LogWriter, pair: Pair, how: str) -> None:
    log.close()  # its thread makes calls too
    part = kstore.open(log.path).read(0, 20_000)
    with failing(1, errno.EPIPE, how):
        if how == "error":
            with pytest.raises(BrokenPipeError):
                part.send(pair[0])
        else:  # sent in part, then on
            sent, data = received(pair, part.send)
            assert sent.size == part.size
            assert data == bytes(part)


def test_where_sendfile_cannot(log: kstore.LogWriter, pair: Pair) -> None:
    log.close()
    part = kstore.open(log.path).read(0, 200_000)
    with failing(1, errno.EINVAL):
        sent, data = received(pair, part.send)
    assert sent == Sent(part.size, "copy")
    assert data == bytes(part)


def test_a_peer_that_has_gone(log: kstore.LogWriter, pair: Pair) -> None:
    pair[1].close()

    def send() -> None:
        for _ in range(10):
            log.send(pair[0], 0, 10 << 20)

    with pytest.raises(ConnectionError):
        send()


# ---- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """Of a server and a client, with a certificate made for this run."""
    directory = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, cert = directory / "key.pem", directory / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert]
    subprocess.run([*made, "-days", "1", "-subj", "/CN=localhost"], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cert)
    client.check_hostname = False
    return server, client


@pytest.mark.parametrize("blocking", [True, False])
def test_tls_is_copied(log: kstore.LogWriter, pair: Pair, contexts: Contexts, blocking: bool) -> None:
    span = log.span(0, 1_000_000)
    into = bytearray()

    def client() -> None:
        with contexts[1].wrap_socket(pair[1]) as tls:
            while len(into) < span.size:
                into.extend(tls.recv(1 << 16))

    thread = threading.Thread(target=client)
    thread.start()
    with contexts[0].wrap_socket(pair[0], server_side=True) as tls:
        tls.setblocking(blocking)
        at = 0
        while at < span.size:
            sent = span.send(tls, at)
            assert sent.path == "copy"
            at += sent.size
            if sent.size == 0:
                select.select([], [tls], [], 10)
        thread.join(60)
    assert bytes(into) == bytes(span)


# ---- asyncio -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_a_stream_writer(log: kstore.LogWriter, contexts: Contexts, tls: bool) -> None:
    span = log.span(0, 10 << 20)
    answers: list[Sent] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"size 4\n")
        answers.append(await span.send_async(writer))
        writer.write(b"end.")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> bytes:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=contexts[0] if tls else None)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port, ssl=contexts[1] if tls else None)
        data = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return data

    data = asyncio.run(main())
    assert data == b"size 4\n" + bytes(span) + b"end."
    assert answers == [Sent(span.size, "copy" if tls else "sendfile")]


def test_a_non_blocking_socket_in_asyncio(log: kstore.LogWriter, pair: Pair) -> None:
    part = log.read(0, 250_000)
    pair[0].setblocking(False)

    def send(sock: socket.socket) -> Sent:
        return asyncio.run(part.send_async(sock, 1000))

    sent, data = received(pair, send)
    assert sent == Sent(part.size - 1000, "sendfile")
    assert data == bytes(part)[1000:]
    pair[0].setblocking(True)
    with pytest.raises(ValueError, match="non-blocking"):
        asyncio.run(part.send_async(pair[0]))
    with pytest.raises(TypeError):
        asyncio.run(part.send_async(object()))


@pytest.mark.parametrize("how", ["whole", "cut", "span", "asyncio", "one"])
def test_truncated_and_grown_again_meanwhile(log: kstore.LogWriter, pair: Pair, how: str) -> None:
    """What was read is sent as it was: the records that came instead are in another file."""
    base = log.segments[-1].base_offset
    first = next(iter(log.batches(base)))
    size = 100 if how == "one" else 5 * BATCH + 100
    part = log.span(base, size) if how == "span" else log.read(base, size, whole_batches=how != "cut")
    before, offsets = bytes(part), [record.offset for record in part]
    log.truncate_to(base if how == "one" else first.last_offset)
    log.extend([b"longer" * 50] * 300, batch_bytes=BATCH - 500)
    pair[0].setblocking(how != "asyncio")
    to_send = (lambda sock: asyncio.run(part.send_async(sock))) if how == "asyncio" else part.send
    assert received(pair, to_send)[1] == before
    assert (bytes(part), [record.offset for record in part]) == (before, offsets)


def test_shortened_by_another_program(log: kstore.LogWriter, pair: Pair) -> None:
    log.close()
    part = kstore.open(log.path).read(0, 200_000)
    assert part.segment is not None
    os.truncate(part.segment.path, 1000)
    for read in (lambda: received(pair, part.send), lambda: bytes(part), lambda: list(part)):
        with pytest.raises(kstore.CorruptRecordError, match=r"shortened|truncated"):
            read()


SERVER = Path(__file__).parents[2] / "examples" / "file_server.py"


def test_the_file_server_of_the_examples(tmp_path: Path) -> None:
    if not SERVER.exists():
        pytest.skip("no examples beside these tests")
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=50_000) as log:
        log.extend([b"." * 100] * 2000, batch_bytes=2000)
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(tmp_path / "t-0"), "0"], stdout=subprocess.PIPE, env=environment()
    )
    try:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as sock:
            file = sock.makefile("rb")
            for offset, size in ((0, 150_000), (1234, 20_000), (2000, 1)):
                sock.sendall(b"%d %d\n" % (offset, size))
                span = bytes(kstore.open(tmp_path / "t-0").span(offset, size))
                assert file.readline() == b"%d\n" % len(span)
                assert file.read(len(span)) == span
            file.close()
    finally:
        process.terminate()
        process.communicate(timeout=120)
