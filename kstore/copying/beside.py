"""What lies beside the segments of a partition: its topic id, its manifest, the states of share groups."""

from __future__ import annotations

import contextlib
import os

from kstore.broker.topic_options import topic_options
from kstore.engine.io.directory import make_directory, write_whole
from kstore.engine.io.file import read_whole
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.log_dir_state import KeptOptions, kept_options, locate
from kstore.log.files.manifest import Manifest, read_manifest, write_manifest
from kstore.log.files.truncations import NO_TRUNCATIONS
from kstore.log.share.descriptions import state_of, topic_id_at
from kstore.log.share.state_content import encode_keys, encode_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.copying.wanted import Wanted
    from kstore.log.partition import PartitionLog

_QUORUM_STATE = "quorum-state"  # of KRaft
_SNAPSHOT_OF_METADATA = ".checkpoint"


def read_beside(source: str, number: int, wanted: Wanted) -> dict[str, bytes]:
    """The topic id, the states of share groups, and KRaft's files, by name. `number`: that of the copied
    partition. To be called before the segments are copied: no state of a share group may be ahead of the
    records. CorruptRecordError for a state that is written for another number; OSError."""
    names = os.listdir(source)
    wanted_names = [layout.METADATA] if layout.METADATA in names else []
    if locate(source).name.topic == layout.CLUSTER_METADATA:
        wanted_names += [name for name in names if name.endswith(_SNAPSHOT_OF_METADATA)]
        wanted_names += [_QUORUM_STATE] if _QUORUM_STATE in names else []
    if layout.SHARES in names and not (wanted.is_bounded or wanted.renumber or wanted.is_for_broker):
        states = os.listdir(f"{source}/{layout.SHARES}")
        wanted_names += [f"{layout.SHARES}/{name}" for name in states if name.endswith(".state")]
    found = {}
    for name in wanted_names:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            data = read_whole(f"{source}/{name}")
            if name.startswith(f"{layout.SHARES}/"):
                data = _for_number(data, source, name, number)
            found[name] = data
    return found


def write_beside(target: str, files: Mapping[str, bytes]) -> None:
    """Writes what `read_beside` has found. OSError."""
    for name, data in files.items():
        make_directory(os.path.dirname(f"{target}/{name}"))
        write_whole(f"{target}/{name}", data)


def _for_number(data: bytes, source: str, name: str, number: int) -> bytes:
    """The content of a share group's file of a partition, which has its number, for another number."""
    tp = locate(source).name
    if tp.partition == number:
        return data
    group = os.path.basename(name).removesuffix(".state")
    keys = encode_keys(group, topic_id_at(source), number)
    return encode_state(state_of(source, tp, group), keys, 1, 0)


def options_of(source: str, wanted: Wanted) -> dict[str, str]:
    """The saved options of a partition, in Kafka's notation. CorruptCheckpointError, OSError."""
    return wanted.or_default(kept_options, source, KeptOptions({}, False)).options


def copy_manifest(log: PartitionLog, target: str, wanted: Wanted) -> None:
    """Copies the manifest, with the truncations of a view. CorruptCheckpointError, OSError."""
    truncations = log.snapshot.truncations
    if truncations.pending:  # the copy has it carried out, unless a batch is still to be encoded again
        is_done = log.log_end_offset <= truncations.offset
        truncations = truncations._replace(pending="") if is_done else truncations.without_pending()
    if truncations.damage is not None:
        truncations = NO_TRUNCATIONS
    manifest = wanted.or_default(read_manifest, log.path, Manifest()).with_truncations(truncations)
    if wanted.saves_options:
        known = wanted.or_default(topic_options, log.path, None)
        manifest = manifest._replace(options={} if known is None else known.options)
    if wanted.renumber:  # a new log: positions in the old one mean nothing in it
        manifest = Manifest(options=manifest.options)
    if manifest != Manifest() and not wanted.is_for_broker:
        write_manifest(target, manifest)
