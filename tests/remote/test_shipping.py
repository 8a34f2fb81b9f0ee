"""kstore.ship: the remote log is whole at each moment, whatever kills, doubles or damages the shipping."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import some
from tests.helpers.processes import run_command

fsspec = pytest.importorskip("fsspec")

CALLS = ("ls", "cat_file", "put_file", "pipe_file", "mv", "rm_file")


class Killed(BaseException):
    """The process ends: nothing that it would do later happens."""


def make(path: Path, records: int = 600, **options: Any) -> list[int]:
    """A log of several segments; the base offsets of the sealed ones."""
    with kstore.open(path, "a", internal_segment_bytes=20_000, index_interval_bytes=500, **options) as log:
        append(log, records)
        return [segment.base_offset for segment in log.segments[:-1]]


def append(log: kstore.LogWriter, records: int) -> None:
    for first in range(log.log_end_offset, log.log_end_offset + records, 20):
        numbers = range(first, first + 20)
        log.extend([b"%0200d" % i for i in numbers], timestamps=[1_711_530_000_000 + i for i in numbers])


def shipped(url: str) -> list[kstore.Record]:
    """The records under a URL."""
    return list(kstore.open(url))


def assert_same(url: str, local: Path, end: int) -> None:
    assert shipped(url) == list(kstore.open(local).records(0, end))


def test_what_was_shipped(tmp_path: Path) -> None:
    local, remote = tmp_path / "orders-0", tmp_path / "remote/orders-0"
    bases = make(local)
    report = kstore.ship(local, f"file://{remote}")
    here = kstore.open(local)
    end = here.segments[-1].base_offset
    size = sum(segment.size for segment in here.segments[:-1])
    assert report.partitions == {"orders-0": kstore.ShippedPartition(0, end, size)}
    assert not report.gaps
    there = kstore.open(f"file://{remote}")
    assert [segment.base_offset for segment in there.segments] == bases
    assert (there.log_start_offset, there.log_end_offset) == (0, end)
    assert there.leader_epochs == here.leader_epochs
    assert there.recovery.clean
    assert there.find(timestamp=1_711_530_000_000 + 333).offset == 333
    assert_same(f"file://{remote}", local, end)
    assert kstore.ship(local, f"file://{remote}").shipped_bytes == 0
    with kstore.open(local, "r+") as log:
        append(log, 400)
    assert kstore.ship(local, f"file://{remote}").partitions["orders-0"].start == 0
    assert_same(f"file://{remote}", local, kstore.open(local).segments[-1].base_offset)
    names = {file.name for file in remote.iterdir() if file.suffix in (".log", ".index", ".timeindex")}
    assert len(names) == 3 * len(kstore.open(f"file://{remote}").segments)
    for name in names:  # Kafka's names and bytes
        assert (remote / name).read_bytes() == (local / name).read_bytes()


def test_in_memory(tmp_path: Path) -> None:
    make(tmp_path / "orders-0")
    kstore.ship(tmp_path, "memory://shipped")
    assert kstore.LogStore("memory://shipped").topics == {"orders": [0]}
    assert_same("memory://shipped/orders-0", tmp_path / "orders-0", 560)


def test_a_download_is_a_directory(tmp_path: Path) -> None:
    local, remote = tmp_path / "orders-0", tmp_path / "remote/orders-0"
    make(local)
    kstore.ship(local, f"file://{remote}")
    download = tmp_path / "download/orders-0"
    shutil.copytree(remote, download)
    assert not kstore.check(download).problems("suspicious")
    end = kstore.open(f"file://{remote}").log_end_offset
    with kstore.open(download, "r+") as log:
        assert log.log_end_offset == end
        assert log.append(b"next") == end
    assert not kstore.check(f"{download}").problems()


@contextmanager
def interrupted(at: int, act: Callable[[str, tuple[Any, ...]], None]) -> Iterator[list[str]]:
    """Has `act` called in the call number `at` of the local file system; yields the names of the calls."""
    kind, calls = type(fsspec.filesystem("file")), list[str]()

    def call(own: Any, name: str, whole: Callable[..., Any], *args: Any, **given: Any) -> Any:
        calls.append(name)
        if len(calls) == at:
            act(name, args)
        return whole(own, *args, **given)

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(kind, name, partialmethod(call, name, getattr(kind, name)))
        yield calls


def kill(name: str, args: tuple[Any, ...]) -> None:
    """Ends the process, once half of what is written is there."""
    if name in ("put_file", "pipe_file"):
        target, data = args if name == "pipe_file" else (args[1], Path(args[0]).read_bytes())
        Path(target).write_bytes(data[: len(data) // 2])
    raise Killed


def moments(local: Path, url: str) -> list[int]:
    """Some of the calls that a shipping makes."""
    with interrupted(-1, kill) as calls:
        kstore.ship(local, url)
    assert len(calls) > 20
    return some(list(range(1, len(calls) + 1)), 12)


def test_killed_at_each_operation(tmp_path: Path) -> None:
    local = tmp_path / "orders-0"
    make(local, 200)
    records = list(kstore.open(local))
    end = kstore.open(local).segments[-1].base_offset
    for at in moments(local, f"file://{tmp_path}/whole/orders-0"):
        remote = tmp_path / f"remote-{at}/orders-0"
        with interrupted(at, kill), pytest.raises(Killed):
            kstore.ship(local, f"file://{remote}")
        found = []
        with suppress(kstore.LogNotFoundError):
            found = shipped(f"file://{remote}")
        assert found == records[: len(found)]
        if any(remote.glob("*.log")):  # a download is whole, too
            found = list(kstore.open(remote))
            assert found == records[: len(found)]
        kstore.ship(local, f"file://{remote}")
        assert list(kstore.open(remote)) == shipped(f"file://{remote}") == records[:end]


def test_two_at_once(tmp_path: Path) -> None:
    """The second runs whole within a call of the first, and deletes here what is there."""
    local = tmp_path / "orders-0"
    make(local, 200)
    records = list(kstore.open(local))
    end = kstore.open(local).segments[-1].base_offset
    for at in moments(local, f"file://{tmp_path}/whole/orders-0"):
        own, url = tmp_path / f"local-{at}/orders-0", f"file://{tmp_path}/remote-{at}/orders-0"
        shutil.copytree(local, own)

        def other(*_: Any, own: Path = own, url: str = url) -> None:
            kstore.ship(own, url, local_retention_ms=0)

        with interrupted(at, other):
            kstore.ship(own, url)
        assert shipped(url) == records[:end]
        assert list(kstore.open(own, remote=url)) == records


def test_two_threads(tmp_path: Path) -> None:
    local, url = tmp_path / "orders-0", f"file://{tmp_path}/remote/orders-0"
    make(local, 2000)
    threads = [threading.Thread(target=kstore.ship, args=(local, url)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(url, local, kstore.open(local).segments[-1].base_offset)
    assert not list((tmp_path / "remote/orders-0").glob("*.tmp"))


def test_both_parts_are_one_log(tmp_path: Path) -> None:
    local, url = tmp_path / "orders-0", f"file://{tmp_path}/remote/orders-0"
    make(local)
    records = list(kstore.open(local))
    report = kstore.ship(local, url, local_retention_ms=0)
    here = kstore.open(local)
    assert report.partitions["orders-0"].deleted_segments > 3
    assert here.log_start_offset == report.partitions["orders-0"].end == here.segments[0].base_offset
    log = kstore.open(local, remote=url)
    assert (log.log_start_offset, log.log_end_offset) == (0, 600)
    assert list(log) == records
    assert log.get(7) == records[7]
    assert log.find(timestamp=1_711_530_000_000 + 100).offset == 100
    assert sum(len(batch) for batch in log.scan()) == 600
    assert log.leader_epochs == kstore.open(url).leader_epochs
    assert not log.recovery.missing
    follower = log.follow(590)
    with kstore.open(local, "r+") as writer:
        append(writer, 400)
    assert [next(follower).offset for _ in range(20)] == list(range(590, 610))
    follower.close()
    assert log.refresh()
    assert log.log_end_offset == 1000
    kstore.ship(local, url, local_retention_ms=0)
    assert log.refresh()  # what was deleted since is read from there
    assert [record.offset for record in log] == list(range(1000))
    for mode in ("a", "r+"):
        with pytest.raises(ValueError, match="can only be read"):
            kstore.open(local, mode, remote=url)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="must be a URL"):
        kstore.open(local, remote="elsewhere")


def test_nothing_is_deleted_that_is_not_there(tmp_path: Path) -> None:
    local, remote = tmp_path / "orders-0", tmp_path / "remote/orders-0"
    url = f"file://{remote}"
    bases = make(local)
    with kstore.open(local, "r+"), pytest.raises(kstore.LogLockedError):
        kstore.ship(local, url, local_retention_ms=0)
    assert len(kstore.open(url).segments) == len(bases)
    kept = kstore.ship(local, url, local_retention_ms=2**62)  # none is so old
    assert kept.partitions["orders-0"].deleted_segments == 0
    for damage in (lambda file: file.write_bytes(file.read_bytes()[:-2] + b"??"), lambda file: file.unlink()):
        files = [remote / f"{bases[1]:020}.log", remote / f"{bases[1]:020}.shipped"]
        whole = [file.read_bytes() for file in files]
        for file, content in zip(files, whole, strict=True):
            damage(file)
            with pytest.raises((kstore.LogChangedError, kstore.CorruptFileError, OSError)):
                kstore.ship(local, url, local_retention_ms=0)
            file.write_bytes(content)
    assert kstore.open(local).log_start_offset == 0
    with kstore.open(local, "r+") as log:
        assert kstore.ship(log, url, local_retention_ms=0).partitions["orders-0"].deleted_segments == len(
            bases
        )
        assert log.log_start_offset == log.segments[0].base_offset > 0


def test_an_object_that_changes_or_disappears(tmp_path: Path) -> None:
    local, remote = tmp_path / "orders-0", tmp_path / "remote/orders-0"
    url = f"file://{remote}"
    bases = make(local)
    kstore.ship(local, url, local_retention_ms=0)
    file = remote / f"{bases[1]:020}.log"
    whole = file.read_bytes()
    log = kstore.open(local, remote=url)
    file.write_bytes(whole[:-100])
    with pytest.raises((kstore.CorruptFileError, OSError)):
        list(log)
    file.unlink()
    for given in ({"remote": url}, {}):
        with pytest.raises(OSError, match="only its manifest is left"):
            kstore.open(local if given else url, **given)
    file.write_bytes(whole)
    assert len(list(kstore.open(local, remote=url))) == 600


def test_another_log_is_refused(tmp_path: Path) -> None:
    local, url = tmp_path / "orders-0", f"file://{tmp_path}/remote"
    make(local)
    kstore.ship(local, url)
    make(tmp_path / "other-0", 900)
    with pytest.raises(kstore.LogChangedError, match="another log is there"):
        kstore.ship(tmp_path / "other-0", url)
    with kstore.open(local, "r+") as log:
        log.truncate_to(250)
        append(log, 400)
    with pytest.raises(kstore.LogChangedError, match="truncated"):
        kstore.ship(local, url)
    Path(tmp_path / "remote/orders-0").mkdir()
    for file in (tmp_path / "remote").glob("0*"):
        shutil.move(file, tmp_path / "remote/orders-0")
    report = kstore.ship(tmp_path, url)
    assert "truncated" in report.failed["orders-0"]
    assert list(report.partitions) == ["other-0"]
    with kstore.open(tmp_path / "users-0", "a", cleanup_policy="compact") as log:
        log.append(b"a", key=b"a")
    with pytest.raises(kstore.PolicyViolationError):
        kstore.ship(tmp_path / "users-0", f"file://{tmp_path}/users")


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    local, url = tmp_path / "orders-0", f"file://{tmp_path}/remote"
    make(local)
    with kstore.open(local, "r+") as log:
        log.delete_records(150)
    kstore.ship(local, url)
    assert kstore.open(url).log_start_offset == 150
    with kstore.open(local, "r+", retention_ms=-1) as log:
        log.retain()
        append(log, 400)
    kstore.ship(local, url, local_retention_ms=0)
    log = kstore.open(local, remote=url)
    assert log.log_start_offset == 150
    assert [record.offset for record in log] == list(range(150, 1000))


def test_a_store(tmp_path: Path) -> None:
    data, url = tmp_path / "data", f"file://{tmp_path}/remote"
    options: dict[str, Any] = {"internal_segment_bytes": 20_000}
    with kstore.LogStore(data, mode="a", background=False) as store:
        store.create_topic("orders", partitions=2, **options)
        store.create_topic("users", cleanup_policy="compact", **options)
        for number in range(2):
            log = store.log("orders", number)
            assert isinstance(log, kstore.LogWriter)
            append(log, 400)
        report = kstore.ship(store, url, local_retention_ms=0)
    assert sorted(report.partitions) == ["orders-0", "orders-1"]
    assert "compacted" in report.left_out["users-0"]
    there = kstore.LogStore(data, remote=url)
    assert there.log("orders", 1).log_start_offset == 0
    assert sum(len(batch) for batch in there.scan("orders")) == 800
    follower = there.follow(["orders"], start="earliest")
    assert sum(1 for _, _ in zip(range(800), follower, strict=False)) == 800
    follower.close()
    with there.cursor("group", ["orders"]) as cursor:
        assert next(iter(cursor)).offset == 0
    assert kstore.LogStore(url).topics == {"orders": [0, 1]}
    with pytest.raises(ValueError, match="can only be read"):
        kstore.LogStore(data, mode="a", remote=url)
    done = run_command("ship", str(data), url, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["partitions"]["orders-0"]["shipped_bytes"] == 0


def test_check_and_copy(tmp_path: Path) -> None:
    local, remote = tmp_path / "data/orders-0", tmp_path / "remote/orders-0"
    url = f"file://{remote}"
    bases = make(local)
    records = list(kstore.open(local))
    kstore.ship(local, url, local_retention_ms=0)
    end = kstore.open(url).log_end_offset
    for number, (source, there, below, stop) in enumerate(
        [
            (local, url, "", 600),
            (local.parent, f"file://{remote.parent}", "orders-0", 600),
            (url, None, "", end),
            (f"file://{remote.parent}", None, "orders-0", end),
        ]
    ):
        kstore.copy(source, tmp_path / f"copy-{number}", remote=there)
        copied = tmp_path / f"copy-{number}" / below
        assert list(kstore.open(copied)) == records[:stop]
        assert not kstore.check(copied).problems()
    assert not kstore.check(local, remote=url).problems()
    assert not kstore.check(local.parent, remote=f"file://{remote.parent}").problems()
    for whole_url in (url, f"file://{remote.parent}"):
        assert kstore.check(whole_url).findings == ()
    assert kstore.check(local, remote=url).files == len(bases) + 1
    here = tmp_path / "here-0"
    manifest = kstore.copy(local, here).manifest  # of the local part only
    for place, *options in ((local,), (here, "--manifest", manifest)):
        done = run_command("check", place, "--remote", url, *options)
        assert done.returncode == 0, done.stdout + done.stderr
    with pytest.raises(ValueError, match="several"):
        kstore.check(local, here, remote=url)
    assert run_command("copy", local, tmp_path / "again", "--remote", url).returncode == 0
    for place, there in ((local, url), (local.parent, f"file://{remote.parent}")):
        lines = run_command("records", place, "--format", "jsonl", "--remote", there).stdout.splitlines()
        assert [json.loads(line)["offset"] for line in lines] == [record.offset for record in records]
    found = run_command("find", local, "--offset", 3, "--json", "--remote", url)
    assert json.loads(found.stdout)["segment"] == 0
    file = remote / f"{bases[2]:020}.log"
    whole = file.read_bytes()
    file.write_bytes(whole[:-2] + b"??")
    for report in (kstore.check(local, remote=url), kstore.check(url)):
        assert [each.file for each in report.problems()] == [f"{url}/{file.name}"]
    with pytest.raises(kstore.CorruptFileError):
        kstore.copy(local, tmp_path / "damaged", remote=url)
    file.write_bytes(whole)
    for last in (f"{bases[-1]:020}.shipped", f"{bases[-1]:020}.log"):
        (remote / last).unlink()
    codes = [each.code for each in kstore.check(local, remote=url).problems()]
    assert codes == ["offsets_missing"]
    log = kstore.open(local, remote=url)
    assert len(log.recovery.missing) == 1
    with pytest.warns(kstore.DataLossWarning):
        assert [record.offset for record in log] == [
            *range(bases[-1]),
            *range(log.segments[-1].base_offset, 600),
        ]


def test_segments_that_were_deleted_before_they_were_shipped(tmp_path: Path) -> None:
    """They are not shipped, deleted here, and a gap of the remote part below the log start."""
    local, url = tmp_path / "orders-0", f"file://{tmp_path}/remote/orders-0"
    bases = make(local)
    with kstore.open(local, "a") as log:
        log.delete_records(bases[1] + 1)
    report = kstore.ship(local, url, local_retention_ms=0)
    assert (report.partitions["orders-0"].start, report.partitions["orders-0"].deleted_segments) == (
        bases[1] + 1,
        len(bases),
    )
    with kstore.open(local, "a") as log:
        append(log, 600)
        first, second, *_ = (segment.base_offset for segment in log.segments)
        log.delete_records(second + 1)
        append(log, 600)
        end = log.log_end_offset
    assert first < second
    kstore.ship(local, url)
    log = kstore.open(local, remote=url)
    assert [record.offset for record in log] == list(range(second + 1, end))
    assert kstore.check(local, remote=url).is_whole


@pytest.mark.parametrize("retention", [{}, {"local_retention_ms": 0}])
def test_a_check_of_what_is_not_the_remote_part(tmp_path: Path, retention: dict[str, int]) -> None:
    """The parts of two logs are exchanged; and the log of a shipped segment is lost."""
    data, remote = tmp_path / "data", tmp_path / "remote"
    url = f"file://{remote}"
    for name, records in (("orders-0", 600), ("other-0", 900)):
        make(data / name, records)
    kstore.ship(data, url, **retention)
    lost = sorted((remote / "orders-0").glob("*.log"))[1]
    first, end = int(lost.stem), int(sorted((remote / "orders-0").glob("*.log"))[2].stem)
    whole = lost.read_bytes()
    lost.unlink()
    (found,) = kstore.check(data, remote=url).problems("lost")
    assert (found.code, found.offsets) == ("offsets_missing", (first, end - 1))
    lost.write_bytes(whole)
    assert kstore.check(data, remote=url).findings == ()
    with kstore.open(data / "orders-0", "a") as log:
        log.erase(where=lambda record: record.offset == 3, reason="asked to")
    assert kstore.check(data, remote=url).is_whole
    (remote / "orders-0").rename(remote / "x")
    (remote / "other-0").rename(remote / "orders-0")
    (remote / "x").rename(remote / "other-0")
    found_in = {
        Path(each.file).relative_to(data).parts[0] for each in kstore.check(data, remote=url).problems()
    }
    assert found_in == {"orders-0", "other-0"}


def test_a_check_of_a_url(tmp_path: Path) -> None:
    """It finds what a check of the directory finds; a file may be given; and a repair refuses a URL."""
    local, copied = tmp_path / "data", tmp_path / "copy"
    make(local / "orders-0")
    with kstore.LogStore(local, mode="a"):
        pass
    manifest = kstore.copy(local, copied).manifest
    assert kstore.check(f"file://{copied}", manifest=manifest).findings == ()
    file = min((copied / "orders-0").glob("*.log"))
    assert kstore.check(f"file://{file}").bytes == file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    assert not kstore.check(f"file://{file}").is_whole
    assert run_command("check", f"file://{file.parent}/{10**6:020}.log").returncode == 2
    assert run_command("check", f"file://{tmp_path}/nothing").returncode == 2
    with pytest.raises(ValueError, match="is a URL"):
        kstore.repair(f"file://{copied}")
    with pytest.raises(NotADirectoryError, match="is a file"):
        kstore.open(f"file://{file}")


@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_a_copy_tells_what_the_url_has_lost(lost: str, tmp_path: Path) -> None:
    local, remote = tmp_path / "data/orders-0", tmp_path / "remote/orders-0"
    urls = {local: f"file://{remote}", local.parent: f"file://{remote.parent}"}
    make(local)
    kstore.ship(local, urls[local], local_retention_ms=0)
    kstore.copy(local.parent, tmp_path / "backup", remote=urls[local.parent])
    before = list(kstore.open(tmp_path / "backup/orders-0"))
    shipped = sorted(int(file.stem) for file in remote.glob("*.shipped"))
    ends = [*shipped[1:], kstore.open(local).log_start_offset]
    at = {"first": 0, "middle": 1, "last": -1}.get(lost)
    gone = range(shipped[at], ends[at]) if at is not None else range(ends[-1])
    for base in shipped if at is None else [shipped[at]]:
        for file in remote.glob(f"{base:020}.*"):
            file.unlink()
    text = f"offsets {gone[0]} to {gone[-1]} are in no segment"
    for source, url in urls.items():
        with pytest.raises(kstore.CorruptFileError, match=text):
            kstore.copy(source, tmp_path / "new", remote=url)
        report = kstore.copy(source, tmp_path / f"skip-{len(str(source))}", remote=url, on_error="skip")
        assert (len(report.gaps), text in report.gaps[0], report.is_complete) == (1, True, False)
    report = kstore.copy(local.parent, tmp_path / "backup", remote=urls[local.parent])
    assert f"has offsets {gone[0]} to {gone[-1]} of orders-0" in report.left_out["orders-0"]
    assert list(kstore.open(tmp_path / "backup/orders-0")) == before
