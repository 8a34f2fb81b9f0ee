"""What Kafka's dump tool and kstore are asked: arguments, and the files that are made for them."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.helpers.forge import crc32c
from tests.helpers.varint import varint

Side = bytes | None
STEM = "0" * 20
LOG = f"{STEM}.log"
TOPICS = ("offsets", "transaction-log", "cluster-metadata", "remote-log-metadata", "share-group-state")
CLASSES = "org.apache.kafka.tools.api."
DEEP, DATA, BARE = "--deep-iteration", "--print-data-log", "--skip-record-metadata"


@dataclass(frozen=True)
class Case:
    """One call. Paths lead to `files`, or where there are none into the golden data."""

    args: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


def sized(data: Side) -> bytes:
    """After its length, -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def batch(*records: tuple[Side, Side], base: int = 0, attributes: int = 0, headers: bytes = b"\0") -> bytes:
    """A sound batch of magic 2; `headers` (their number before them) are those of every record."""
    body = b""
    for delta, (key, value) in enumerate(records):
        body += sized(b"\0" + varint(0) + varint(delta) + sized(key) + sized(value) + headers)
    last, count, time = len(records) - 1, len(records), 1700000000000
    tail = struct.pack(">hiqqqhii", attributes, last, time, time, 7, 1, 3, count) + body
    return struct.pack(">qiibI", base, 9 + len(tail), 0, 2, crc32c(tail)) + tail


SOUND = batch((b"k", b"v"), (b"k2", None))


def golden_logs() -> Iterator[Case]:
    """Ranges of bytes, bare records, decoders of classes, decoders of topics on right and wrong logs."""
    for partition in (
        "transactions/txn-0",
        "nulls/nulls-0",
        "headers/headers-0",
        "magic1/old1-0",
        "compact_txn_4_markers_gone/ctxn-0",
        "broker/data/__consumer_offsets-0",
        "broker/data/__transaction_state-0",
        "broker/data/__cluster_metadata-0",
    ):
        files = ["--files", f"{partition}/{LOG}"]
        for size in (0, 17, 60, 200, 1000):
            yield Case([*files, "--max-bytes", str(size), DEEP])
        yield Case([*files, "--max-bytes", "-1"])
        yield Case([*files, "--max-bytes", "2000", BARE, DATA])
        yield Case([*files, "--max-bytes", "2000", BARE, DEEP])
        yield Case([*files, "--max-bytes", "2000", BARE])
        for topic in TOPICS:
            yield Case([*files, "--max-bytes", "1500", f"--{topic}-decoder"])
        yield Case([*files, "--max-bytes", "900", "--share-group-state-decoder", "--offsets-decoder"])
        for name in ("String", "Integer", "Long"):
            yield Case([*files, "--max-bytes", "900", "--key-decoder-class", f"{CLASSES}{name}Decoder"])
            yield Case([*files, "--max-bytes", "900", "--value-decoder-class", f"{CLASSES}{name}Decoder"])


def golden_indexes() -> Iterator[Case]:
    """Indexes of sound, open and damaged logs; snapshots, and all files of a directory at once."""
    for partition in (
        "transactions/txn-0",
        "magic1/old1-0",
        "open_small_index/live-1",
        "crash_indexes_damaged/crash-4",
        "big_offsets/big-0",
    ):
        for kind in (".index", ".timeindex"):
            stem = "0" * 9 + "05000720883" if partition.startswith("big") else STEM
            files = ["--files", f"{partition}/{stem}{kind}"]
            for words in ([], ["--verify-index-only"], ["--index-sanity-check"]):
                yield Case([*files, *words])
            if kind == ".index":
                for size in (0, 61, 120, 5000):
                    yield Case([*files, "--max-message-size", str(size)])
    snapshots = ("054", "118", "172", "235", "294")
    names = [f"transactions/txn-0/{STEM[3:]}{n}.snapshot" for n in snapshots]
    names += [f"transactions/txn-0/{STEM}{kind}" for kind in (".txnindex", ".index", ".timeindex")]
    names += ["transactions/txn-0/leader-epoch-checkpoint", f"transactions/txn-0/{LOG}"]
    yield Case(["--files", ",".join(names)])
    yield Case(["--files", ",".join([*names, names[-1]]), DEEP, "--max-bytes", "300"])
    yield Case(["--files", f"{names[-1]},transactions/txn-0/{STEM[3:]}999.log,{names[0]}"])
    yield Case(
        [
            "--files",
            ",".join(
                f"broker/data/__cluster_metadata-0/{STEM[3:]}{n}.checkpoint"
                for n in ("057-0000000001", "103-0000000001")
            ),
            "--cluster-metadata-decoder",
        ]
    )


def odd_records() -> Iterator[Case]:
    """Nulls, empty sides, what is no UTF-8, what no decoder can read, between two that every class can."""
    for key, value in (
        (None, None),
        (b"", b""),
        (None, b""),
        (b"", None),
        (b"\xff\xfe\xed\xa0\x80", b"\xc3"),
        (b"\0\1", b"\0\0\0\7"),
        (b"12345", b"123456789"),
        (b"123", b"1234567"),
    ):
        log = {LOG: batch((b"1234", b"12345678"), (key, value), (b"4321", b"87654321"), base=5)}
        for words in ([DEEP], [DATA, BARE]):
            yield Case(["--files", LOG, *words], log)
        for topic in TOPICS:
            yield Case(["--files", LOG, f"--{topic}-decoder"], log)
        for name in ("Integer", "Long"):
            yield Case(["--files", LOG, BARE, "--key-decoder-class", f"{CLASSES}{name}Decoder"], log)
            yield Case(["--files", LOG, "--value-decoder-class", f"{CLASSES}{name}Decoder"], log)
    header = b"\4" + sized(b"") + sized(None) + sized(b"\xff") + sized(b"x")
    yield Case(["--files", LOG, DEEP], {LOG: batch((b"k", b"v"), headers=header)})


def control_records() -> Iterator[Case]:
    """Every type, known and not, in known and unknown versions, with values whole and short."""
    values = (None, b"\0", b"\0\0\0\0\0\5", b"\0\1\0\0\0\5", b"\xff\xff\0\0\0\5", b"\0\7" + bytes(12))
    for kind in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 32767):
        for value in values:
            yield Case(
                ["--files", LOG, DEEP], {LOG: batch((struct.pack(">hh", 0, kind), value), attributes=0x30)}
            )
    for key in (None, b"", b"\0\0\0", b"\0\1\0\1", b"\xff\xff\0\1"):
        log = {LOG: batch((key, b"\0\0\0\0\0\5"), attributes=0x20)}
        for words in ([DATA], [BARE, "--offsets-decoder"]):
            yield Case(["--files", LOG, *words], log)


def batches() -> Iterator[Case]:
    """Codecs and flags that there are not, a bit turned in each byte, bytes cut off and added."""
    for attributes in (*range(1, 9), 0x40, 0x48, 0x7FF8):
        yield Case(["--files", LOG, DEEP], {LOG: batch((b"k", b"v"), attributes=attributes)})
    two = batch((b"key", b"value"), (None, b"w")) + batch((b"key", None), base=2)
    turned = random.Random(20261)
    for at in range(len(two)):
        data = bytearray(two)
        data[at] ^= 1 << turned.randrange(8)
        if at not in range(8, 12):  # of a batch cut inside its header Kafka shows what lies behind it
            yield Case(["--files", LOG, DATA], {LOG: bytes(data)})
    for size in range(0, len(two), 9):
        yield Case(["--files", LOG, DATA], {LOG: two[:size]})
    for tail in (b"\0", bytes(18), bytes(100), b"\xff" * 18):
        yield Case(["--files", LOG], {LOG: two + tail})


def names() -> Iterator[Case]:
    """What the name of a file says, and how a path is printed."""
    for name in (
        "foo.log",
        ".log",
        "12.log",
        "+7.log",
        "-3.log",
        "1_0.log",
        " 1.log",
        "99999999999999999999.log",
        "5.6.log",
        "x.LOG",
        f"{LOG}.deleted",
        f"{STEM}.",
        "log",
        "bootstrap.checkpoint",
        f"{STEM}-0000000001.checkpoint",
        f"{STEM}x0000000001abc.checkpoint",
        f"{STEM}-9999999999.checkpoint",
        "x.checkpoint",
    ):
        yield Case([f"--files={name}", DATA], {name: SOUND})  # a name may begin with a dash
    log = {f"a/{LOG}": SOUND}
    for path in (
        f"./a//{LOG}/",
        f"a/../a/{LOG}",
        "",
        ",",
        f",a/{LOG},,",
        f"a/{LOG},a/{LOG}",
        f" a/{LOG}",
        "a",
        "a/",
    ):
        yield Case(["--files", path, DEEP], log)
    gone = {f"{STEM}.log.deleted": SOUND, f"{STEM}.index": bytes(8), f"{STEM}.timeindex": bytes(12)}
    for kind in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
        yield Case(["--files", STEM + kind], gone)
        yield Case(["--files", STEM + kind, "--index-sanity-check"], {LOG: SOUND})


def index_bytes() -> Iterator[Case]:
    """Indexes and snapshots of bytes that are none, or not whole entries."""
    entry = struct.pack(">bxqqqq", 0, 7, 1, 2, 3)
    for kind in (".index", ".timeindex", ".txnindex", ".snapshot"):
        for data in (
            b"",
            bytes(8),
            bytes(12),
            bytes(24),
            bytes(100),
            b"\0\1\2",
            b"\0\1" + b"\xff" * 40,
            entry,
        ):
            files = {f"7{kind}": data, "7.log": SOUND}
            if kind == ".timeindex":
                files["7.index"] = bytes(8)
            for words in ([], ["--index-sanity-check"], ["--verify-index-only"]):
                yield Case(["--files", f"7{kind}", *words], files)
        yield Case(["--files", f"foo{kind}"], {f"foo{kind}": b"", "foo.log": b"", "foo.index": b""})
    for version in (b"\1\0", b"\0\1", b"\0\xff", b"\xff\0"):
        yield Case(["--files", "7.txnindex"], {"7.txnindex": entry + version + entry[2:]})
        yield Case(["--files", "7.snapshot"], {"7.snapshot": version + bytes(8)})
    for count in (-1, 1, 2, 3, 60, 2**31 - 1):
        yield Case(["--files", "7.snapshot"], {"7.snapshot": struct.pack(">hIi", 1, 0, count) + bytes(60)})


def options() -> Iterator[Case]:
    """Options in odd forms. (Wrong usage is 2 in kstore and 1 in Kafka's tool, so it is not here.)"""
    for words in (
        ["--max-bytes=80", DEEP],
        ["--max-bytes", "-2147483648"],
        ["--max-message-size", "-5"],
        ["--value-decoder-class"],
        ["--key-decoder-class"],
        ["--value-decoder-class", "no.such.Class"],
        ["--key-decoder-class", "kafka.serializer.StringDecoder"],
        ["--value-decoder-class", "no.such.Class", "--remote-log-metadata-decoder"],
        ["--verify-index-only", "--index-sanity-check"],
        [DEEP, DEEP],
    ):
        yield Case(["--files", LOG, *words], {LOG: SOUND})
    yield Case(["--files", "7.txnindex", "--value-decoder-class", "no.such.Class"], {"7.txnindex": b""})


def cases() -> Iterator[Case]:
    """All of them, always in the same order."""
    for some in (
        golden_logs,
        golden_indexes,
        odd_records,
        control_records,
        batches,
        names,
        index_bytes,
        options,
    ):
        yield from some()
