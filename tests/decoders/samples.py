"""Records with what Kafka's own dump tool made of them (Kafka 4.3.1, run once; data/*.jsonl.gz).

The two functions that decode a record are imported here only: `kstore dump` ends at the first record that
Kafka's tool cannot decode, so it cannot be asked for thousands of damaged ones.

`broker`: of a real broker's internal topics. `generated`: written by Kafka's message classes, every
type in every version, with defaults, values, nulls, tagged fields known and unknown, and empty ones
(`what` says which). `damaged`: some of them changed at random. All stand at offset 7.
"""

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from kstore.messages.decoders import DecodeError, SkippedError, control_text, record_texts

__all__ = ["DecodeError", "Sample", "SkippedError", "control_text", "record_texts", "samples"]

DATA = Path(__file__).parent / "data"
OFFSET = 7
COORDINATED = ("offsets", "transaction-log", "share-group-state")  # of a coordinator: a type before the key
FRAMED = ("cluster-metadata", "remote-log-metadata")  # frame version, type and version before the value
Texts = tuple[str | None, str | None]


@dataclass(frozen=True)
class Sample:
    """One record; `texts` is None where Kafka's tool ends with an exception."""

    what: str
    decoder: str
    key: bytes | None
    value: bytes | None
    texts: Texts | None

    def decode(self, key: bytes | None, value: bytes | None) -> Texts:
        """What kstore makes of this key and value as a record of this sample's topic."""
        if self.decoder.startswith("control-"):
            return None, control_text(int(self.decoder.removeprefix("control-")), value or b"")
        return record_texts(self.decoder, key, value, OFFSET)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def samples(name: str) -> list[Sample]:
    """All samples of a file."""
    found = []
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            found.append(
                Sample(
                    what=fields.get("what", ""),
                    decoder=fields["decoder"],
                    key=_bytes(fields["key"]),
                    value=_bytes(fields["value"]),
                    texts=None if "error" in fields else (fields["key_text"], fields["payload_text"]),
                )
            )
    return found
