import java.io.*;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import kafka.log.LogManager;
import scala.jdk.javaapi.CollectionConverters;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A real Kafka, asked line by line: a JSON object with "op" comes in, one goes out, with "error" if Kafka threw, and with
 * "log", what Kafka logged meanwhile. Every operation names the partition directory ("dir") that it is about.
 */
final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ByteArrayOutputStream LOGGED = new ByteArrayOutputStream();

    private final Map<String, UnifiedLog> logs = new HashMap<>();
    private final Map<String, Clock> clocks = new HashMap<>();
    private final Map<String, LogManager> managers = new HashMap<>();
    private final Map<String, FileLock> locks = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        System.setErr(new PrintStream(LOGGED, true, StandardCharsets.UTF_8));   // where slf4j-simple writes
        Driver driver = new Driver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode reply = Report.object();
            try {
                driver.run(JSON.readTree(line), reply);
            } catch (Throwable e) {
                Throwable cause = e.getClass().getSimpleName().equals("RecordValidationException") ? e.getCause() : e;
                reply.put("error", cause.getClass().getSimpleName()).put("message", cause.getMessage());
            }
            ArrayNode logged = reply.putArray("log");
            LOGGED.toString(StandardCharsets.UTF_8).lines().forEach(logged::add);
            LOGGED.reset();
            out.write(JSON.writeValueAsBytes(reply));
            out.write('\n');
            out.flush();
        }
    }

    /** One pass of Kafka's cleaner over these offsets. */
    private static void clean(UnifiedLog log, Clock clock, JsonNode op, ObjectNode reply) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(op.path("slots").asInt(10_000) * 24), 65_536, 1_048_588,
            op.path("load_factor").asDouble(0.9), new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "bytes", clock), clock, tp -> { });
        LogToClean todo =
            new LogToClean(log, op.get("first_dirty").asLong(), op.get("first_uncleanable").asLong(), false);
        reply.put("end_offset", cleaner.clean(todo).getKey());
    }

    /** What Kafka's cleaner would clean now; its choice is not public. */
    private static void cleanable(UnifiedLog log, Clock clock, JsonNode op, ObjectNode reply) throws Exception {
        Optional<Long> checkpoint =
            op.has("checkpoint") ? Optional.of(op.get("checkpoint").asLong()) : Optional.<Long>empty();
        Method choice = Class.forName("org.apache.kafka.storage.internals.log.LogCleanerManager")
            .getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        choice.setAccessible(true);
        log.updateHighWatermark(log.logEndOffset());
        Object found = choice.invoke(null, log, checkpoint, clock.milliseconds());
        long[] offsets = new long[2];
        for (int i = 0; i < 2; i++) {
            Method get =
                found.getClass().getDeclaredMethod(i == 0 ? "firstDirtyOffset" : "firstUncleanableDirtyOffset");
            get.setAccessible(true);
            offsets[i] = (Long) get.invoke(found);
        }
        LogToClean todo = new LogToClean(log, offsets[0], offsets[1], false);
        reply.put("first_dirty", offsets[0]).put("first_uncleanable", todo.firstUncleanableOffset());
        reply.put("ratio", todo.totalBytes() == 0 ? 0 : todo.cleanableRatio());
    }

    /** The records of a file, as a broker's group coordinator reads them. */
    private static void positions(File file, ArrayNode found) throws Exception {
        try (FileRecords records = FileRecords.open(file)) {
            for (Record record : records.records())
                found.add(new GroupCoordinatorRecordSerde().deserialize(record.key(), record.value()).toString());
        }
    }

    private static LogConfig config(JsonNode op) {
        Map<String, String> config = new TreeMap<>();
        op.path("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        return new LogConfig(config);
    }

    private void run(JsonNode op, ObjectNode reply) throws Exception {
        String dir = op.get("dir").asText();
        UnifiedLog log = logs.get(dir);
        Clock clock = clocks.get(dir);
        switch (op.get("op").asText()) {
            case "open" -> {
                clock = new Clock(op.get("now").asLong());
                clocks.put(dir, clock);
                log = UnifiedLog.create(new File(dir), config(op), op.path("log_start_offset").asLong(0),
                    op.path("recovery_point").asLong(0), clock, new BrokerTopicStats(), clock, 300_000,
                    new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
                    op.path("clean").asBoolean(true), Optional.<Uuid>empty());
                logs.put(dir, log);
            }
            case "append" -> append(log, op, reply);
            case "now" -> clock.now = op.get("ms").asLong();
            case "assign_epoch" -> log.assignEpochStartOffset(op.get("epoch").asInt(), log.logEndOffset());
            case "roll" -> reply.put("base_offset", log.roll().baseOffset());
            case "flush" -> log.flush(false);
            case "retain" -> reply.put("deleted", log.deleteOldSegments());
            case "delete_records" -> log.maybeIncrementLogStartOffset(
                op.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate_to" -> log.truncateTo(op.get("offset").asLong());
            case "truncate_fully" -> log.truncateFullyAndStartAt(op.get("offset").asLong(), Optional.empty());
            case "cleanable" -> cleanable(log, clock, op, reply);
            case "clean" -> clean(log, clock, op, reply);
            case "records" -> reply.set("records", new Report(log).records());
            case "summary" -> reply.set("summary", new Report(log).summary());
            case "check" -> reply.set("wrong", new Report(log).check());
            case "lookups" -> {
                ArrayNode answers = reply.putArray("answers");
                for (JsonNode query : op.get("queries"))
                    answers.add(new Report(log).answer(query.asText()));
            }
            case "topic_id" -> reply.put("topic_id", log.topicId().orElseThrow().toString());
            case "positions" -> positions(new File(dir), reply.putArray("positions"));
            case "close" -> {
                log.flush(true);      // as a broker's shutdown does
                log.close();
                logs.remove(dir);
                clock.run();
            }
            case "abandon" -> logs.remove(dir).closeHandlers();
            case "start" -> start(dir, op, reply);
            case "shutdown" -> {
                managers.remove(dir).shutdown(op.path("broker_epoch").asLong(-1));
                logs.keySet().removeIf(name -> name.startsWith(dir + "/"));
            }
            case "checkpoints" -> checkpoints(dir, reply);
            case "lock" -> {
                FileLock lock = new FileLock(new File(dir, ".lock"));
                boolean taken = lock.tryLock();
                if (taken)
                    locks.put(dir, lock);
                reply.put("taken", taken);
            }
            case "unlock" -> locks.remove(dir).unlockAndClose();
            default -> throw new IllegalArgumentException(op.toString());
        }
        if (logs.get(dir) != null) {
            clock.run();
            log.updateHighWatermark(log.logEndOffset());     // a single replica
            reply.put("log_start_offset", log.logStartOffset()).put("log_end_offset", log.logEndOffset());
        }
    }

    private static void append(UnifiedLog log, JsonNode op, ObjectNode reply) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(op.get("data").binaryValue()));
        long before = log.logEndOffset();
        int epoch = op.path("leader_epoch").asInt(0);
        LogAppendInfo done = switch (op.path("as").asText("client")) {
            case "follower" -> log.appendAsFollower(records, epoch);
            case "coordinator" -> log.appendAsLeader(records, epoch, AppendOrigin.COORDINATOR, RequestLocal.noCaching(),
                VerificationGuard.SENTINEL, (short) op.path("transaction_version").asInt(-1));
            default -> log.appendAsLeader(records, epoch);
        };
        reply.put("first_offset", done.firstOffset()).put("last_offset", done.lastOffset());
        reply.put("duplicate", done.validBytes() > 0 && log.logEndOffset() == before);
    }

    /** A broker's start: its LogManager locks the log directory, reads marker and checkpoints, loads every partition. */
    private void start(String dir, JsonNode op, ObjectNode reply) throws Exception {
        Clock clock = new Clock(op.get("now").asLong());
        LogManager manager = new LogManager(CollectionConverters.asScala(java.util.List.of(new File(dir))).toSeq(),
            CollectionConverters.asScala(java.util.List.<File>of()).toSeq(), resource -> new Properties(), config(op),
            new CleanerConfig(false), 1, Long.MAX_VALUE, 60_000L, 60_000L, 300_000L, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, clock, new BrokerTopicStats(),
            new LogDirFailureChannel(1), clock, false, 0L, (a, b, c, d, e) -> null);
        managers.put(dir, manager);
        manager.startup(CollectionConverters.asScala(java.util.Set.<String>of()), log -> false);
        ArrayNode names = reply.putArray("partitions");
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            log.updateHighWatermark(log.logEndOffset());
            logs.put(log.dir().getPath(), log);
            clocks.put(log.dir().getPath(), clock);
            names.add(log.topicPartition().toString());
        }
    }

    private static void checkpoints(String dir, ObjectNode reply) throws Exception {
        for (String name : new String[] {"recovery-point", "log-start", "replication"}) {
            Map<TopicPartition, Long> found =
                new OffsetCheckpointFile(new File(dir, name + "-offset-checkpoint"), null).read();
            ObjectNode offsets = reply.putObject(name);
            found.forEach((partition, offset) -> offsets.put(partition.toString(), offset));
        }
        CleanShutdownFileHandler marker = new CleanShutdownFileHandler(dir);
        reply.put("clean", marker.exists());
        reply.put("broker_epoch", marker.exists() ? (Long) marker.read().orElse(-2) : null);
    }
}
