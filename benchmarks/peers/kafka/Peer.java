// Kafka's own storage classes, driven over stdin and stdout like limits.c:
// usage: Peer DATA SEALED    then on stdin "WORKLOAD ARG...", on stdout "NANOSECONDS UNITS CHECKSUM" for each
// SEALED is a copy of DATA/sealed-0 of Kafka's own, for Kafka writes to a log that it opens.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.zip.CRC32C;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Peer {
    static final long T0 = 1_700_000_000_000L;      // timestamp of offset 0; ten records a millisecond
    static Path data, sealed;
    static LogSegment segment;
    static FileRecords single;
    static long sink;

    record Sample(long ns, long units, long sum) { }

    // Nothing may run behind the measurement.
    static final class Idle implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public void resizeThreadPool(int n) { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return (ScheduledFuture<?>) Proxy.newProxyInstance(Idle.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class},
                (self, method, args) -> method.getReturnType() == boolean.class ? false : null);
        }
    }

    static LogConfig config() {
        Map<String, Object> m = new HashMap<>();
        m.put("segment.bytes", 1 << 30);
        m.put("index.interval.bytes", 4096);
        m.put("segment.ms", Long.MAX_VALUE);
        m.put("retention.ms", -1L);
        return new LogConfig(m);
    }

    static LogSegment segment() throws Exception {
        if (segment == null)
            segment = LogSegment.open(data.resolve("batched-0").toFile(), 0, config(), Time.SYSTEM, true, 0, false, "");
        return segment;
    }

    static FileRecords single() throws Exception {
        if (single == null)
            single = FileRecords.open(data.resolve("single-0").resolve("00000000000000000000.log").toFile(), false);
        return single;
    }

    static long mix(long z) {
        z += 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    static long[] targets(long seed, long count, long span) {
        long[] out = new long[(int) count];
        for (int i = 0; i < out.length; i++) out[i] = Long.remainderUnsigned(mix(seed + i), span);
        return out;
    }

    static Sample crc32c(int size, long times) {
        byte[] buffer = new byte[size];
        CRC32C crc = new CRC32C();
        long t = System.nanoTime();
        for (long i = 0; i < times; i++) {
            crc.reset();
            crc.update(buffer, 0, size);
            sink += crc.getValue();
        }
        return new Sample(System.nanoTime() - t, size * times, size * times);
    }

    static Sample headers() throws Exception {
        FileRecords records = single();
        long units = 0, sum = 0, t = System.nanoTime();
        for (FileChannelRecordBatch b : records.batches()) {
            sum += b.lastOffset() + b.maxTimestamp();
            units++;
        }
        return new Sample(System.nanoTime() - t, units, sum);
    }

    static Sample positions() throws Exception {
        FileRecords records = single();
        long units = 0, sum = 0, t = System.nanoTime();
        for (FileChannelRecordBatch b : records.batches()) {
            sum += b.baseOffset() + b.sizeInBytes();
            units++;
        }
        return new Sample(System.nanoTime() - t, units, sum);
    }

    static Sample lookup(long[] want) throws Exception {
        OffsetIndex index = segment().offsetIndex();
        long sum = 0, t = System.nanoTime();
        for (long offset : want) sum += index.lookup(offset).position();
        return new Sample(System.nanoTime() - t, want.length, sum);
    }

    static Sample get(long[] want) throws Exception {
        LogSegment s = segment();
        Optional<Long> end = Optional.of((long) s.size());
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        long sum = 0, t = System.nanoTime();
        for (long offset : want) sum += read(s, offset, end, buffer);
        return new Sample(System.nanoTime() - t, want.length, sum);
    }

    static long read(LogSegment s, long offset, Optional<Long> end, ByteBuffer buffer) throws Exception {
        FileRecords slice = (FileRecords) s.read(offset, 1, end, true).records;
        buffer.clear().limit(slice.sizeInBytes());
        slice.readInto(buffer, 0);
        for (MutableRecordBatch b : MemoryRecords.readableRecords(buffer).batches()) {
            b.ensureValid();
            for (Record r : b) {
                if (r.offset() >= offset) {
                    ByteBuffer v = r.value();
                    sink += v.get(v.position());
                    return r.offset();
                }
            }
        }
        throw new IllegalStateException("no record at " + offset);
    }

    static Sample find(long[] want) throws Exception {
        LogSegment s = segment();
        long sum = 0, t = System.nanoTime();
        for (long offset : want) sum += s.findOffsetByTimestamp(T0 + offset / 10, 0).get().offset;
        return new Sample(System.nanoTime() - t, want.length, sum);
    }

    static Sample open() throws Exception {
        long t = System.nanoTime();
        UnifiedLog log = UnifiedLog.create(sealed.toFile(), config(), 0, 0, new Idle(), new BrokerTopicStats(),
            Time.SYSTEM, 300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(4), true, Optional.empty());
        t = System.nanoTime() - t;
        long segments = log.numberOfSegments();
        log.close();
        return new Sample(t, 1, segments);
    }

    static Sample run(String workload, long... a) throws Exception {
        return switch (workload) {
            case "crc32c" -> crc32c((int) a[0], a[1]);
            case "headers" -> headers();
            case "positions" -> positions();
            case "lookup" -> lookup(targets(a[0], a[1], a[2]));
            case "get" -> get(targets(a[0], a[1], a[2]));
            case "find" -> find(targets(a[0], a[1], a[2]));
            case "open" -> open();
            default -> throw new IllegalArgumentException("unknown workload " + workload);
        };
    }

    public static void main(String[] args) throws Exception {
        data = Path.of(args[0]);
        sealed = Path.of(args[1]);
        System.out.println(AppInfoParser.getVersion() + ", Java " + System.getProperty("java.version"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            long[] a = new long[words.length - 1];
            for (int i = 0; i < a.length; i++) a[i] = Long.parseLong(words[i + 1]);
            Sample s = run(words[0], a);
            System.out.println(s.ns + " " + s.units + " " + s.sum);
        }
        if (sink == 42) System.err.println(sink);
    }
}
