"""Damaged records of internal topics: text, or DecodeError. (What sound ones give, the golden dumps prove.)"""

from pathlib import Path

import pytest

import kstore
from kstore.tools.internal import DECODERS, DecodeError, control_text
from kstore.tools.internal.schema import messages

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker" / "data"
TOPICS = {
    "__consumer_offsets-0": "offsets",
    "__transaction_state-0": "transaction-log",
    "__cluster_metadata-0": "cluster-metadata",
}


def some_records(partition: str) -> list[kstore.Record]:
    """One record of each length, the shorter ones: every bit of them is turned."""
    by_size = {len(r.value or b""): r for r in kstore.open(BROKER / partition)}
    return [by_size[size] for size in sorted(by_size)[:12]]


@pytest.mark.parametrize("partition", TOPICS)
def test_damage(partition: str) -> None:
    decode = DECODERS[TOPICS[partition]]
    for record in some_records(partition):
        decode(record.key, record.value)
        for at, whole in enumerate((record.key, record.value)):
            if not whole:
                continue
            damaged = [whole[:n] for n in range(len(whole))]
            for bit in range(8 * len(whole)):
                changed = bytearray(whole)
                changed[bit // 8] ^= 1 << bit % 8
                damaged.append(bytes(changed))
            for data in damaged:
                key, value = (data, record.value) if at == 0 else (record.key, data)
                try:
                    texts = decode(key, value)
                except DecodeError:
                    continue
                assert all(text is None or isinstance(text, str) for text in texts)


def test_control_records() -> None:
    leader_change = bytes.fromhex("0000 00000001 02 00000001 00 01 00")
    text = ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    assert control_text(2, leader_change) == text
    assert control_text(99, b"") is None
    for kind in range(2, 7):
        for size in range(len(leader_change)):
            try:
                control_text(kind, leader_change[:size])
            except DecodeError:
                continue


def test_every_table_parses() -> None:
    names = [message.name for message in messages()]
    assert len(names) == len(set(names)) > 80
    assert {message.kind for message in messages()} == {"key", "value", "record", "data"}
