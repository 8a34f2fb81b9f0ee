import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.*;

import com.fasterxml.jackson.databind.node.*;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.*;

/** What Kafka says of an open log, in the form that tests/golden/answers.py gives kstore's answers. */
final class Report {
    private final UnifiedLog log;

    Report(UnifiedLog log) {
        this.log = log;
    }

    static ObjectNode object() {
        return JsonNodeFactory.instance.objectNode();
    }

    private static ArrayNode array(long... values) {
        ArrayNode all = JsonNodeFactory.instance.arrayNode();
        for (long value : values)
            all.add(value);
        return all;
    }

    private static String text(ByteBuffer bytes) {
        return bytes == null ? null : new String(Base64.getEncoder().encode(bytes.duplicate()).array());
    }

    // ---- records

    /** One entry a record, or a batch without any, in the order of the files. */
    ArrayNode records() {
        ArrayNode lines = array();
        for (LogSegment segment : log.logSegments()) {
            int position = 0;
            for (FileChannelRecordBatch batch : segment.log().batches()) {
                ObjectNode fields = batch(segment, batch, position);
                position += batch.sizeInBytes();
                int before = lines.size();
                for (Record record : batch)
                    lines.add(record(batch, record).set("batch", fields));
                if (lines.size() == before)
                    lines.add(object().putNull("offset").set("batch", fields));
            }
        }
        return lines;
    }

    private static ObjectNode batch(LogSegment segment, FileChannelRecordBatch b, int position) {
        ObjectNode n = object();
        n.put("segment", segment.baseOffset()).put("position", position).put("size", b.sizeInBytes());
        n.put("base_offset", b.baseOffset()).put("last_offset", b.lastOffset()).put("magic", b.magic());
        n.put("crc", b.checksum()).put("codec", b.compressionType().name).put("timestamp_type", b.timestampType().name);
        n.put("max_timestamp", b.maxTimestamp());
        if (b.magic() >= RecordBatch.MAGIC_VALUE_V2) {
            n.put("count", b.countOrNull()).put("pid", b.producerId()).put("epoch", b.producerEpoch());
            n.put("base_sequence", b.baseSequence()).put("last_sequence", b.lastSequence());
            n.put("transactional", b.isTransactional()).put("control", b.isControlBatch());
            n.put("leader_epoch", b.partitionLeaderEpoch());
            n.put("delete_horizon", b.deleteHorizonMs().isPresent() ? (Long) b.deleteHorizonMs().getAsLong() : null);
        }
        if (!b.isValid())
            n.put("valid", false);
        return n;
    }

    private static ObjectNode record(RecordBatch batch, Record record) {
        ObjectNode n = object().put("offset", record.offset()).put("timestamp", record.timestamp());
        n.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = n.putArray("headers");
        for (Header h : record.headers())
            headers.addArray().add(h.key()).add(h.value() == null ? null : text(ByteBuffer.wrap(h.value())));
        if (record.sequence() >= 0)
            n.put("sequence", record.sequence());
        if (batch.isControlBatch()) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            n.put("control_type", type.name());
            if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT)
                n.put("coordinator_epoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
        }
        return n;
    }

    /** The log as a whole. */
    ObjectNode summary() throws IOException {
        ObjectNode n = object();
        n.put("log_start_offset", log.logStartOffset()).put("log_end_offset", log.logEndOffset());
        n.put("recovery_point", log.recoveryPoint()).put("last_stable_offset", log.lastStableOffset());
        ArrayNode segments = n.putArray("segments");
        for (LogSegment s : log.logSegments()) {
            ObjectNode x = segments.addObject().put("base_offset", s.baseOffset()).put("size", s.size());
            x.put("index_entries", s.offsetIndex().entries()).put("time_index_entries", s.timeIndex().entries());
            TimestampOffset max = s.readMaxTimestampAndOffsetSoFar();
            x.set("max_timestamp_so_far", array(max.timestamp(), max.offset()));
            ArrayNode aborted = x.putArray("aborted");
            s.txnIndex().allAbortedTxns().forEach(a ->
                aborted.add(array(a.producerId(), a.firstOffset(), a.lastOffset(), a.lastStableOffset())));
        }
        ArrayNode epochs = n.putArray("leader_epochs");
        log.leaderEpochCache().epochEntries().forEach(e -> epochs.add(array(e.epoch(), e.startOffset())));
        ObjectNode producers = n.putObject("producers");
        new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, e) -> producers.putArray("" + id)
            .add(e.producerEpoch()).add(e.coordinatorEpoch()).add(e.lastTimestamp())
            .add(e.currentTxnFirstOffset().isPresent() ? e.currentTxnFirstOffset().getAsLong() : -1)
            .add(e.batchMetadata().stream().mapToLong(BatchMetadata::lastOffset).max().orElse(-1)));
        return n;
    }

    // ---- lookups

    ObjectNode answer(String query) {
        String[] w = query.split(" ");
        ObjectNode n = object().put("query", query);
        try {
            switch (w[0]) {
                case "offset" -> offset(Long.parseLong(w[1]), n);
                case "timestamp" -> timestamp(Long.parseLong(w[1]), true, n);
                case "latest" -> timestamp(-1, false, n);
                case "earliest" -> timestamp(-2, false, n);
                case "max_timestamp" -> timestamp(-3, false, n);
                case "fetch" -> fetch(Long.parseLong(w[1]), Integer.parseInt(w[2]), w[3], w[4].equals("1"), n);
                case "aborted" -> {
                    ArrayNode all = n.putArray("aborted");
                    log.collectAbortedTransactions(Long.parseLong(w[1]), Long.parseLong(w[2])).forEach(a ->
                        all.add(array(a.producerId(), a.firstOffset(), a.lastOffset(), a.lastStableOffset())));
                }
                case "epoch_end" -> log.endOffsetForEpoch(Integer.parseInt(w[1])).ifPresentOrElse(
                    x -> n.put("epoch", x.epoch()).put("end_offset", x.offset()),
                    () -> n.putNull("epoch").putNull("end_offset"));
                default -> throw new IllegalArgumentException(query);
            }
        } catch (Exception e) {
            n.put("error", e.getClass().getSimpleName());
        }
        return n;
    }

    private void offset(long target, ObjectNode n) throws IOException {
        LogSegment floor = null;
        for (LogSegment s : log.logSegments())
            if (s.baseOffset() <= target)
                floor = s;
        if (floor != null) {
            OffsetPosition entry = floor.offsetIndex().lookup(target);
            n.put("floor_segment", floor.baseOffset()).set("index", array(entry.offset(), entry.position()));
            var at = floor.translateOffset(target);
            n.set("translate", at == null ? null
                : object().put("base_offset", at.offset).put("position", at.position).put("size", at.size));
        }
        fetch(target, 1, "read_uncommitted", true, n);
    }

    private void fetch(long target, int maxBytes, String isolation, boolean minOne, ObjectNode n) throws IOException {
        FetchDataInfo found = log.read(target, maxBytes, isolation.equals("read_committed")
            ? FetchIsolation.TXN_COMMITTED : FetchIsolation.HIGH_WATERMARK, minOne);
        ObjectNode r = n.putObject("fetch");
        r.put("segment", found.fetchOffsetMetadata.segmentBaseOffset);
        r.put("position", found.fetchOffsetMetadata.relativePositionInSegment).put("size", found.records.sizeInBytes());
        var batches = found.records.batches().iterator();
        if (batches.hasNext()) {
            RecordBatch b = batches.next();
            r.put("batch_base_offset", b.baseOffset()).put("batch_last_offset", b.lastOffset());
            r.put("batch_size", b.sizeInBytes());
        }
        found.abortedTransactions.ifPresent(all -> {
            ArrayNode a = r.putArray("aborted");
            all.forEach(x -> a.add(array(x.producerId(), x.firstOffset())));
        });
    }

    private void timestamp(long target, boolean index, ObjectNode n) throws IOException {
        var found = log.fetchOffsetByTimestamp(target, java.util.Optional.empty()).timestampAndOffsetOpt();
        n.put("timestamp", found.map(x -> x.timestamp).orElse(null)).put("offset", found.map(x -> x.offset).orElse(null));
        n.put("leader_epoch", found.flatMap(x -> x.leaderEpoch).orElse(null));
        if (!index)
            return;
        for (LogSegment s : log.logSegments())
            if (s.largestTimestamp() >= target) {
                TimestampOffset entry = s.timeIndex().lookup(target);
                n.put("segment", s.baseOffset()).set("time_index", array(entry.timestamp(), entry.offset()));
                return;
            }
    }

    // ---- soundness

    /** What is wrong with the indexes: their own checks, and every entry against the batches. */
    ArrayNode check() throws IOException {
        ArrayNode wrong = array();
        for (LogSegment s : log.logSegments()) {
            try {
                s.offsetIndex().sanityCheck();
                s.timeIndex().sanityCheck();
                s.txnIndex().sanityCheck();
            } catch (RuntimeException e) {
                wrong.add(e.toString());
            }
            Map<Integer, Long> lastOffsets = new HashMap<>();
            Map<Long, Long> largest = new HashMap<>();     // last offset of a batch -> largest timestamp so far
            int position = 0;
            long most = -1;
            for (FileChannelRecordBatch b : s.log().batches()) {
                lastOffsets.put(position, b.lastOffset());
                position += b.sizeInBytes();
                most = Math.max(most, b.maxTimestamp());
                largest.put(b.lastOffset(), most);
                if (b.magic() >= 2 && b.partitionLeaderEpoch() >= 0 && b.baseOffset() >= log.logStartOffset()
                        && log.leaderEpochCache().epochForOffset(b.baseOffset()).orElse(-1) != b.partitionLeaderEpoch())
                    wrong.add("batch " + b.baseOffset() + ": not the leader epoch of the checkpoint");
            }
            if (position != s.size())
                wrong.add(s.log().file() + ": bytes behind the last batch");
            for (int i = 0; i < s.offsetIndex().entries(); i++)
                if (!Long.valueOf(s.offsetIndex().entry(i).offset()).equals(lastOffsets.get(s.offsetIndex().entry(i).position())))
                    wrong.add(s.offsetIndex().file() + ": " + s.offsetIndex().entry(i));
            TimestampOffset last = TimestampOffset.UNKNOWN;
            for (int i = 0; i < s.timeIndex().entries(); i++) {
                last = s.timeIndex().entry(i);
                if (!Long.valueOf(last.timestamp()).equals(largest.get(last.offset())))
                    wrong.add(s.timeIndex().file() + ": " + last);
            }
            if (most >= 0 && s.timeIndex().entries() > 0 && s != log.activeSegment() && last.timestamp() != most)
                wrong.add(s.timeIndex().file() + ": ends with " + last + ", not " + most);
        }
        return wrong;
    }
}
