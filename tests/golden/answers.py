"""What kstore says of a log, in the form in which Kafka's answers are kept."""

from typing import Any

import kstore
from kstore.tools.printing import about_batch, encoded, record_fields


def all_lines(log: kstore.PartitionLog) -> list[dict[str, Any]]:
    """One entry a record, or a batch without any, in file order: what records.jsonl holds, and what
    `kstore records --format jsonl --base64 --control` prints."""
    lines = []
    for segment in log.segments:
        at = 0
        while at < segment.size:
            try:
                batch = segment.batch_at(at)
            except kstore.CorruptRecordError:
                break
            fields = {"segment": segment.base_offset, **about_batch(batch)}
            try:
                records = batch.records(verify=False)
            except kstore.KstoreError:
                lines.append({"offset": None, "error": True, "batch": fields})
            else:
                if not records:
                    lines.append({"offset": None, "batch": fields})
                lines += [record_fields(batch, record, encoded) | {"batch": fields} for record in records]
            at += batch.size
    return lines


def fetched(log: kstore.PartitionLog, part: kstore.Slice) -> dict[str, Any]:
    fields: dict[str, Any] = {"segment": part.base_offset, "position": part.position, "size": part.size}
    if part.size and not part.first_entry_incomplete:
        batch = part.segment.batch_at(part.position)
        fields |= {
            "batch_base_offset": batch.base_offset,
            "batch_last_offset": batch.last_offset,
            "batch_size": batch.size,
        }
    if part.aborted is not None:
        fields["aborted"] = [list(txn) for txn in part.aborted]
    return fields


def found(answer: kstore.OffsetAndTimestamp | None) -> dict[str, Any]:
    if answer is None:
        return {"timestamp": None, "offset": None, "leader_epoch": None}
    return {"timestamp": answer.timestamp, "offset": answer.offset, "leader_epoch": answer.leader_epoch}


ERRORS = {
    kstore.OffsetOutOfRangeError: "OffsetOutOfRangeException",
    kstore.CorruptRecordError: "KafkaException",
}


def answer(log: kstore.PartitionLog, query: str) -> dict[str, Any]:
    """What kstore answers to one query of lookups.jsonl."""
    verb, *words = query.split()
    reply: dict[str, Any] = {"query": query}
    try:
        if verb == "offset":
            offset = int(words[0])
            at = log.floor_segment(offset)
            if at >= 0:
                segment = log.segments[at]
                reply["floor_segment"] = segment.base_offset
                reply["index"] = list(segment.offset_index.lookup(offset))
                located = segment.translate(offset)
                reply["translate"] = None if located is None else located._asdict()
            reply["fetch"] = fetched(log, log.read(offset, 1))
        elif verb == "timestamp":
            timestamp = int(words[0])
            reply |= found(log.find(timestamp=timestamp))
            for segment in log.segments:
                if segment.largest_timestamp >= timestamp:
                    reply["segment"] = segment.base_offset
                    reply["time_index"] = list(segment.time_index.lookup(timestamp))
                    break
        elif verb == "fetch":
            isolation = "read_committed" if words[2] == "read_committed" else "read_uncommitted"
            part = log.read(int(words[0]), int(words[1]), isolation, min_one_message=words[3] == "1")
            reply["fetch"] = fetched(log, part)
        elif verb == "aborted":
            txns = log.aborted_transactions(int(words[0]), int(words[1]))
            reply["aborted"] = [list(txn[:4]) for txn in txns]
        elif verb == "epoch_end":
            epoch, end = log.end_offset_for_epoch(int(words[0]))
            reply |= {"epoch": None if epoch < 0 else epoch, "end_offset": None if epoch < 0 else end}
        else:
            names = {name.lower(): getattr(kstore, name) for name in dir(kstore) if name.isupper()}
            reply |= found(log.find(timestamp=names[verb]))
    except kstore.KstoreError as e:
        reply["error"] = ERRORS[type(e)]
    return reply
