"""Every sample reads as Kafka's own tool printed it, and the samples cover every table."""

import pytest

from kstore.tools.decoders import DecodeError, control, metadata, offsets, remote, shares, transactions
from kstore.tools.decoders.schema import Message
from tests.decoders.samples import Sample, samples

GENERATED = samples("generated")


def wrong(sample: Sample) -> str | None:
    """What differs, None if nothing."""
    try:
        texts = sample.decode(sample.key, sample.value)
    except DecodeError as error:
        return None if sample.texts is None else f"{sample.what}: {error}"
    return None if texts == sample.texts else f"{sample.what}: {texts} is not {sample.texts}"


@pytest.mark.parametrize("name", ["broker", "generated", "damaged"])
def test_samples(name: str) -> None:
    found = samples(name)
    assert len(found) > 50
    assert [text for text in map(wrong, found) if text] == []


def versions(sample: Sample) -> tuple[str, int, int]:
    """The decoder, type and version of a generated sample."""
    if sample.decoder.startswith("control-"):
        return "control", int(sample.decoder.removeprefix("control-")), int(sample.what.split("/")[1])
    if sample.key is None:
        assert sample.value is not None
        return sample.decoder, sample.value[1], sample.value[2]
    kind = int.from_bytes(sample.key[:2], "big")
    version = -1 if sample.value is None else int.from_bytes(sample.value[:2], "big")
    return sample.decoder, kind, version


def test_every_type_in_every_version_is_among_them() -> None:
    tables: dict[str, dict[int, Message]] = {
        "control": control.RECORDS,
        "cluster-metadata": metadata.RECORDS,
        "remote-log-metadata": remote.RECORDS,
    }
    pairs = {
        "offsets": offsets.RECORDS,
        "transaction-log": transactions.RECORDS,
        "share-group-state": shares.RECORDS,
    }
    for name, records in pairs.items():
        tables[name] = {kind: value for kind, (_, value) in records.items()}
    wanted = {
        (name, kind, version)
        for name, table in tables.items()
        for kind, message in table.items()
        for version in range(message.highest + 1)
    }
    assert wanted <= set(map(versions, GENERATED))
