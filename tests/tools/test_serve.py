"""kstore serve: the address, what it says of itself, and its end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment
from tests.serving.raw import RawClient, encoded


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command with its address."""
    command = [sys.executable, "-P", "-m", "kstore", "serve", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Stop the command, which is no failure, and return what it has said."""
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    return said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_reading(tmp_path: Path, number: int) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"tea")
    with serving(tmp_path) as (address, process):
        with RawClient(address) as client:
            (found,) = client.fetch(("t", 0, 0))
            assert b"tea" in found["records"]
        said = end(process, number)
    assert "for reading; one node, no replication, no TLS, no SASL" in said
    assert address.startswith("127.0.0.1:")


def test_writing(tmp_path: Path) -> None:
    options = ("--write", "--create-topics", "--config", "retention.ms=-1", "--durability", "group")
    with serving(tmp_path / "new", *options) as (address, process), RawClient(address) as client:
        client.ask("Metadata", 8, {"topics": [{"name": "t"}], "allowAutoTopicCreation": True})
        partitions = [{"index": 0, "records": encoded(b"tea")}]
        client.ask("Produce", 8, {"acks": -1, "topicData": [{"name": "t", "partitionData": partitions}]})
        assert "for reading and writing" in end(process)
    store = kstore.LogStore(tmp_path / "new")
    assert [record.value for record in store.log("t")] == [b"tea"]
    assert store.closed_cleanly


def test_another_address(tmp_path: Path) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    with serving(tmp_path, "--host", "0.0.0.0") as (address, process):
        assert address.startswith("0.0.0.0:")
        assert "other machines may reach 0.0.0.0" in end(process)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--create-topics"], 2),
        (["--durability", "group"], 2),
        (["--config", "retention.ms=5"], 2),
        (["--host", "no such host"], 1),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], code: int) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    command = [sys.executable, "-P", "-m", "kstore", "serve", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, env=environment(), text=True, timeout=60, check=False)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
