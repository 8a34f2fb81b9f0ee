"""Records of __transaction_state (spec 11.1, --transaction-log-decoder)."""

from typing import Final

from kstore.tools.decoders.coordinated import Records, decode_coordinated
from kstore.tools.decoders.errors import Texts
from kstore.tools.decoders.schema import (
    INT8,
    INT16,
    INT32,
    INT32S,
    INT64,
    NEVER,
    STRING,
    Array,
    Field,
    Message,
    Struct,
)

_PARTITIONS = Struct(
    Field("topic", STRING),
    Field("partitionIds", INT32S),
)

RECORDS: Final[Records] = {
    0: (
        Message("TransactionLogKey", Field("transactionalId", STRING), flexible=NEVER),
        Message(
            "TransactionLog",
            Field("producerId", INT64),
            Field("previousProducerId", INT64, since=1, tag=0, default=-1),
            Field("nextProducerId", INT64, since=1, tag=1, default=-1),
            Field("producerEpoch", INT16),
            Field("nextProducerEpoch", INT16, since=1, tag=3, default=-1),
            Field("transactionTimeoutMs", INT32),
            Field("transactionStatus", INT8),
            Field("transactionPartitions", Array(_PARTITIONS), nullable=True),
            Field("transactionLastUpdateTimestampMs", INT64),
            Field("transactionStartTimestampMs", INT64),
            Field("clientTransactionVersion", INT16, since=1, tag=2),
            highest=1,
            flexible=1,
        ),
    ),
}


def decode_transactions(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(RECORDS, key, value)
