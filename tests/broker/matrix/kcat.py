"""kcat, a program of the shell: what it prints, case by case."""

import subprocess
from collections.abc import Callable
from typing import Any

from tests.broker.matrix.client import LIMIT
from tests.broker.matrix.librdkafka import Librdkafka

RECORDS = "".join(f"key {number % 5}\tvalue {number}\n" for number in range(100))
ROWS = ("-f", "%p %o %k %s %h\\n")


def run(address: str, *arguments: str, given: str = "") -> str:
    """Its output, or what it says on its end with an error."""
    done = subprocess.run(
        ["kcat", "-q", "-b", address, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout}"


def _create(address: str, topic: str, **config: str) -> None:
    options = {name.replace("_", "."): value for name, value in config.items()}
    Librdkafka(address).admin().create(topic, 1, 1, options)


def _codec(codec: str) -> Callable[[str, str], Any]:
    def case(address: str, topic: str) -> Any:
        _create(address, topic)
        said = run(address, "-P", "-t", topic, "-K", "\t", "-H", "h=1", "-z", codec, given=RECORDS)
        return said, run(address, "-C", "-t", topic, "-o", "beginning", "-e", *ROWS)

    return case


def idempotence(address: str, topic: str) -> Any:
    _create(address, topic)
    said = run(address, "-P", "-t", topic, "-X", "enable.idempotence=true", given=RECORDS)
    return said, run(address, "-C", "-t", topic, "-o", "beginning", "-e", *ROWS)


def assign(address: str, topic: str) -> Any:
    _create(address, topic)
    run(address, "-P", "-t", topic, given=RECORDS)
    ends = [run(address, "-Q", "-t", f"{topic}:0:{each}") for each in (-2, -1)]
    last = run(address, "-C", "-t", topic, "-p", "0", "-o", "-10", "-e", *ROWS)
    return ends, last, run(address, "-C", "-t", topic, "-p", "0", "-o", "40", "-c", "7", *ROWS)


def resume(address: str, topic: str) -> Any:
    _create(address, topic)
    run(address, "-P", "-t", topic, given=RECORDS)
    group = ("-X", "auto.offset.reset=earliest", *ROWS, "-G", topic, topic)
    return [run(address, "-c", "40", *group), run(address, "-c", "60", *group)]


def transactions(address: str, topic: str) -> Any:
    _create(address, topic)
    said = run(address, "-P", "-t", topic, "-X", "transactional.id=kcat", given=RECORDS)
    isolations = ("read_committed", "read_uncommitted")
    read = ("-C", "-t", topic, "-o", "beginning", "-e", *ROWS)
    return said, [run(address, "-X", f"isolation.level={each}", *read) for each in isolations]


def seek_by_time(address: str, topic: str) -> Any:
    _create(address, topic)
    run(address, "-P", "-t", topic, given=RECORDS)
    found = [run(address, "-Q", "-t", f"{topic}:0:{each}") for each in (1, 2**42)]
    return found, run(address, "-C", "-t", topic, "-o", "s@1", "-e", "-c", "5", *ROWS)


def large_records(address: str, topic: str) -> Any:
    _create(address, topic, max_message_bytes="4000000")
    limit = ("-X", "message.max.bytes=20000000")
    sizes = (3_000_000, 4_100_000)
    said = [run(address, "-P", "-t", topic, *limit, given="x" * size + "\n") for size in sizes]
    small = ("-X", "max.partition.fetch.bytes=100000")
    return run(address, "-C", "-t", topic, "-o", "beginning", "-e", *small, "-f", "%o %S\\n"), said


CASES: dict[str, Callable[[str, str], Any]] = {
    **{f"produce with {codec}": _codec(codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    "idempotence": idempotence,
    "assign": assign,
    "commit and resume": resume,
    "transactions": transactions,
    "seek by time": seek_by_time,
    "large records": large_records,
}
