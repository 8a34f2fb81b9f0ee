"""A damaged log-start-offset-checkpoint: deleted records may return, nothing else goes, it is reported."""

from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main

STARTS = "log-start-offset-checkpoint"
CLEAN = ".kafka_cleanshutdown"
DAMAGES = {
    "emptied": b"",
    "zeros": bytes(12),
    "cut off": b"0\n1\nt 0",
    "beyond the end": b"0\n1\nt 0 100\n",
    "the largest": b"0\n1\nt 0 %d\n" % (2**63 - 1),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        for topic in ("t", "other"):
            store.create_topic(topic)
            store.extend(topic, [b"v"] * 51)
        store.log("t", 0).delete_records(20)  # type: ignore[attr-defined]
    return tmp_path / "data"


@pytest.mark.parametrize("content", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("how", ["store", "log"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_log_start_is_reported(data: Path, content: bytes, how: str, clean: bool) -> None:
    (data / STARTS).write_bytes(content)
    if not clean:
        (data / CLEAN).unlink()
    with kstore.open(data / "t-0") as view:
        assert [f.file for f in view.recovery.findings if f.code.startswith("log_start")] == [
            str(data / STARTS)
        ]
        assert len(list(view)) == 51

    def append() -> int:
        if how == "store":
            with kstore.LogStore(data, mode="a", background=False) as store:
                return store.append("t", b"more")[1]
        with kstore.open(data / "t-0", "a") as log:
            return log.append(b"more")

    with pytest.warns(kstore.DataLossWarning, match=f"{STARTS}: .*may be readable again"):
        assert append() == 51
    assert append() == 52
    assert [r.offset for r in kstore.open(data / "t-0")] == list(range(53))
    assert list((data / "t-0").glob("*.cut")) == []
    assert kstore.open(data / "t-0").recovery.findings == []


def test_each_log_of_a_store_reports_it_once(data: Path) -> None:
    (data / STARTS).write_bytes(b"")
    with pytest.warns(kstore.DataLossWarning, match=f"{STARTS}: it was emptied.*{STARTS}.cut"):
        store = kstore.LogStore(data, mode="a", background=False)
    with store:
        with pytest.warns(kstore.DataLossWarning, match="t-0"):
            store.log("t", 0).delete_records(5)  # type: ignore[attr-defined]
        with pytest.warns(kstore.DataLossWarning, match="other-0"):
            store.append("other", b"v")
        store.create_topic("new")
        store.append("new", b"v")
    with kstore.LogStore(data, mode="a", background=False) as store:
        assert [store.log(topic, 0).log_start_offset for topic in ("t", "other", "new")] == [5, 0, 0]


@pytest.mark.parametrize("line", ["t 1 2x", "t 1 -20", "t 1 -0", "t 1", "t x 20"])
@pytest.mark.parametrize("how", ["store", "log"])
def test_a_lost_line_of_another_partition_stays_known(
    tmp_path: Path, how: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write to one partition replaces the file, so a copy of the damaged one is kept."""
    data, kept = tmp_path / "data", tmp_path / "data" / f"{STARTS}.cut"
    with kstore.LogStore(data, mode="a") as store:
        store.create_topic("t", partitions=2)
        for partition in (0, 1):
            log = store.log("t", partition)
            log.extend([b"v"] * 51)
            log.delete_records(20)  # type: ignore[attr-defined]
    content = (data / STARTS).read_text().replace("t 1 20", line)
    (data / STARTS).write_text(content)

    def write() -> None:
        if how == "log":
            with kstore.open(data / "t-0", "a") as log:
                log.delete_records(30)
        else:
            kstore.LogStore(data, mode="a").close()

    with pytest.warns(kstore.DataLossWarning, match=f"{STARTS}: .* a copy is kept in {kept}"):
        write()
    assert kept.read_text() == content
    write()
    assert (data / STARTS).read_text() == f"0\n1\nt 0 {30 if how == 'log' else 20}\n"
    assert [file.name for file in data.glob("*.cut")] == [kept.name]
    for path in (data, data / "t-1"):
        assert main(["check", str(path)]) == 1
        assert str(kept) in capsys.readouterr().out
    kept.unlink()
    main(["check", str(data)])  # the epochs of records that are readable again are missing
    assert str(kept) not in capsys.readouterr().out


def test_a_broker_makes_an_empty_file(data: Path) -> None:
    """It is filled a minute later, or when the broker stops."""
    (data / "meta.properties").write_text("version=1\nnode.id=1\n")
    (data / STARTS).write_bytes(b"")
    (data / CLEAN).unlink()
    assert kstore.open(data / "t-0").recovery.findings == []
    kstore.LogStore(data, mode="a").close()


def test_what_is_deleted_is_flushed_first(data: Path) -> None:
    """So a power cut leaves no log start beyond the end."""
    with kstore.open(data / "t-0", "a", durability="none") as log:
        log.extend([b"v"] * 10)
        assert log.durable_offset < 61
        log.delete_records(60)
        assert log.durable_offset == 61
