"""Scans give the same rows as Record iteration, for logs of a real Kafka with every kind of batch."""

import pyarrow
import pytest

import kstore
from tests.columns.plain import COLUMNS, expected, scanned
from tests.golden.scenarios import Scenario, scenarios

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here

LOGS = {
    "big_offsets", "broker/__cluster_metadata-0", "broker/state_store-0", "broker_killed/payments-0",
    "codec_mixed", "compact_2_cleaned", "compact_txn_3_markers_stamped", "crash_bad_crc",
    "crash_below_recovery_point", "delete_records", "headers", "idempotent", "log_append_time",
    "magic0", "magic1", "nulls", "swap_3",
}  # fmt: skip
BATCH_FIELDS = (
    "base_offset", "last_offset", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch",
    "base_sequence", "leader_epoch", "records_count", "attributes", "codec", "magic", "crc", "size",
    "position",
)  # fmt: skip


@pytest.fixture(params=[scenario for scenario in scenarios() if scenario.name in LOGS], ids=str)
def log(request: pytest.FixtureRequest) -> kstore.PartitionLog:
    scenario: Scenario = request.param
    return kstore.open(scenario.shared(), **scenario.options())


def kinds(scenario: Scenario) -> set[tuple[object, ...]]:
    """What distinguishes its batches, from Kafka's own account of them."""
    return {
        (
            batch["magic"],
            batch["codec"],
            batch["timestamp_type"],
            batch.get("transactional"),
            batch.get("control"),
            batch.get("delete_horizon") is None,
            batch.get("pid", -1) < 0,
            batch.get("count") == 0,
            "valid" in batch,
        )
        for line in scenario.lines("records.jsonl")
        if (batch := line.get("batch"))
    }


def test_every_kind_of_batch_is_there() -> None:
    here = {kind for scenario in scenarios() if scenario.name in LOGS for kind in kinds(scenario)}
    assert here == {kind for scenario in scenarios() for kind in kinds(scenario)}
    assert len(here) > 25


def test_all_rows(log: kstore.PartitionLog) -> None:
    for isolation in ("read_uncommitted", "read_committed"):
        right = expected(log, {"isolation": isolation})
        for options in (
            {},
            {"batch_rows": 1},
            {"batch_rows": 7, "views": True},
            {"threads": 2},
            {"batch_bytes": 50},
        ):
            assert scanned(log, isolation=isolation, **options) == right, (isolation, options)


def test_from_an_offset_on(log: kstore.PartitionLog) -> None:
    first, end = log.log_start_offset, log.log_end_offset
    for start in {first, (first + end) // 2, max(end - 1, first), end}:
        assert scanned(log, start=start, threads=2) == expected(log, {"start": start})


def test_skipping(log: kstore.PartitionLog) -> None:
    records = log.records(on_error="skip")
    right = [(r.offset,) for r in records]
    scan = log.scan(["offset"], on_error="skip", threads=2)
    assert [row for batch in scan for row in batch.rows()] == right
    assert [s[:3] for s in scan.skipped] == [s[:3] for s in records.skipped]


def test_fields_of_batches(log: kstore.PartitionLog) -> None:
    right = []
    is_damaged = False
    try:
        for batch in log.batches(isolation="read_uncommitted"):
            fields = [getattr(batch, name) for name in BATCH_FIELDS]
            for record in batch.records(verify=False):
                if not batch.is_control and log.log_start_offset <= record.offset < log.log_end_offset:
                    right.append((record.offset, *fields))  # noqa: PERF401
    except kstore.KstoreError:
        is_damaged = True
    rows, problem = scanned(log, columns=("offset", *BATCH_FIELDS), batch_rows=5)
    assert rows == right
    assert (problem is not None) == is_damaged


def test_arrow(log: kstore.PartitionLog) -> None:
    right, error = expected(log, {})
    for views in (False, True):
        scan = log.scan(views=views, batch_rows=10)
        if error is not None:
            with pytest.raises((OSError, pyarrow.ArrowInvalid), match=r"CorruptRecordError|TooLarge|Codec"):
                pyarrow.table(scan)
            continue
        table = pyarrow.table(scan)
        table.validate(full=True)
        rows = [
            (*row.values(), tuple((h["key"], h["value"]) for h in headers))
            for row in table.to_pylist()
            for headers in [row.pop("headers")]
        ]
        assert rows == right
        assert table.schema.names == list(COLUMNS)
