"""Records of Kafka's internal topics as kafka-dump-log prints them (spec 11).

DECODERS maps the name of a decoder option to a function of key and value that gives the texts behind ` key: ` and
` payload: `, None where nothing is printed.
"""

from kstore.tools.internal.control import control_text
from kstore.tools.internal.groups import decode_offsets, decode_share_group_state, decode_transaction_log
from kstore.tools.internal.metadata import decode_cluster_metadata, decode_remote_log_metadata
from kstore.tools.internal.schema import DecodeError

DECODERS = {
    "offsets": decode_offsets,
    "transaction-log": decode_transaction_log,
    "cluster-metadata": decode_cluster_metadata,
    "remote-log-metadata": decode_remote_log_metadata,
    "share-group-state": decode_share_group_state,
}

__all__ = ["DECODERS", "DecodeError", "control_text"]
