// Kafka's own storage classes, driven over stdin and stdout like limits.c:
// usage: Peer DATA SEALED WORK    then on stdin "WORKLOAD ARG...", on stdout "NANOSECONDS UNITS CHECKSUM" for each
// SEALED is a copy of DATA/sealed-0 of Kafka's own, for Kafka writes to a log that it opens. What it appends goes below
// WORK.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Peer {
    static final long T0 = 1_700_000_000_000L;      // timestamp of offset 0; ten records a millisecond
    static final int VALUE = 100, BATCH_RECORDS = 138, THREADS = 8;
    static final String LOG = "00000000000000000000.log";
    static Path data, sealed, work;
    static LogSegment segment;
    static FileRecords single;
    static Cleaner cleaner;
    static final BufferSupplier SUPPLIER = BufferSupplier.create();
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

    static LogConfig config(Object... more) {
        Map<String, Object> m = new HashMap<>();
        m.put("segment.bytes", 1 << 30);
        m.put("index.interval.bytes", 4096);
        m.put("segment.ms", Long.MAX_VALUE);
        m.put("retention.ms", -1L);
        for (int i = 0; i < more.length; i += 2) m.put((String) more[i], more[i + 1]);
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
        UnifiedLog log = log(sealed, config(), true);
        t = System.nanoTime() - t;
        long segments = log.numberOfSegments();
        log.close();
        return new Sample(t, 1, segments);
    }

    static UnifiedLog log(Path dir, LogConfig config, boolean clean) throws IOException {
        return UnifiedLog.create(dir.toFile(), config, 0, 0, new Idle(), new BrokerTopicStats(), Time.SYSTEM, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(4), clean,
            Optional.empty());
    }

    // ---- writing: into WORK/kafka-0, which each turn makes and removes --------------------------------------------

    static void remove(Path dir) throws IOException {
        if (!Files.exists(dir)) return;
        try (Stream<Path> s = Files.walk(dir)) {
            for (Path p : s.sorted(Comparator.reverseOrder()).toList()) Files.delete(p);
        }
    }

    static Path fresh() throws IOException {
        Path dir = work.resolve("kafka-0");
        remove(dir);
        return Files.createDirectories(dir);
    }

    static LogSegment made() throws IOException {
        return LogSegment.open(fresh().toFile(), 0, config(), Time.SYSTEM, 0, false);
    }

    // Ends a turn: the size of the log.
    static long written(AutoCloseable log) throws Exception {
        long size = Files.size(work.resolve("kafka-0").resolve(LOG));
        log.close();
        remove(work.resolve("kafka-0"));
        return size;
    }

    // Batches that are encoded already, `join` of them a call; a leader gives them their offsets.
    static Sample appendBatches(long bytes, int join, boolean leader) throws Exception {
        ByteBuffer all = ByteBuffer.allocate((int) bytes);
        try (FileChannel f = FileChannel.open(data.resolve("batched-0").resolve(LOG))) {
            while (all.hasRemaining() && f.read(all, all.position()) > 0) { }
        }
        List<MemoryRecords> ready = new ArrayList<>();
        int from = 0, at = 0, n = 0;
        while (at + 12 <= all.position() && at + all.getInt(at + 8) + 12 <= all.position()) {
            if (leader) all.putLong(at, 0);
            at += all.getInt(at + 8) + 12;
            if (++n % join == 0) {
                ready.add(own(all, from, at));
                from = at;
            }
        }
        if (at > from) ready.add(own(all, from, at));
        UnifiedLog log = log(fresh(), config(), true);
        long t = System.nanoTime();
        if (leader) for (MemoryRecords r : ready) log.appendAsLeader(r, 0);
        else for (MemoryRecords r : ready) log.appendAsFollower(r, 0);
        t = System.nanoTime() - t;
        long size = written(log);
        return new Sample(t, size, size);
    }

    static MemoryRecords own(ByteBuffer all, int from, int until) {
        ByteBuffer copy = ByteBuffer.allocate(until - from);
        copy.put(all.duplicate().position(from).limit(until)).flip();
        return MemoryRecords.readableRecords(copy);
    }

    // Encodes: the key is the number of the row, the value the row. No object is made for a record.
    static final class Encoder {
        static final Map<String, byte[]> FILES = new HashMap<>();
        final ByteBuffer key = ByteBuffer.allocate(8), value, out = ByteBuffer.allocate(1 << 16);
        final Compression compression;
        final int rows;

        Encoder(Compression compression, String file) throws IOException {
            synchronized (FILES) {
                if (!FILES.containsKey(file)) FILES.put(file, Files.readAllBytes(data.resolve(file)));
                value = ByteBuffer.wrap(FILES.get(file));
            }
            this.compression = compression;
            rows = value.capacity() / VALUE;
        }

        MemoryRecords batch(long base, long from, int count) {
            out.clear();
            MemoryRecordsBuilder b = MemoryRecords.builder(out, compression, TimestampType.CREATE_TIME, base);
            for (long i = from; i < from + count; i++) {
                int row = (int) (i % rows);
                key.putLong(0, row);
                value.limit(row * VALUE + VALUE).position(row * VALUE);
                b.append(T0 + i / 10, key, value);
            }
            MemoryRecords r = b.build();
            r.buffer().putInt(12, 0);                               // leader epoch, which no CRC covers
            return r;
        }
    }

    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    // Records to batches, each appended by the segment alone, or by the whole log.
    static Sample extend(int codec, long records, boolean whole) throws Exception {
        Encoder e = new Encoder(Compression.of(CODECS[codec]).build(), codec == 0 ? "pool.bin" : "json.bin");
        int n = BATCH_RECORDS;
        long t, size;
        if (whole) {
            UnifiedLog log = log(fresh(), config(), true);
            t = System.nanoTime();
            for (long at = 0; at < records; at += n) log.appendAsLeader(e.batch(0, at, n), 0);
            t = System.nanoTime() - t;
            size = written(log);
        } else {
            LogSegment log = made();
            t = System.nanoTime();
            for (long at = 0; at < records; at += n) log.append(at + n - 1, e.batch(at, at, n));
            t = System.nanoTime() - t;
            size = written(log);
        }
        return new Sample(t, records, codec == 0 ? size : records);
    }

    static Sample append(long records, boolean whole) throws Exception {
        Encoder e = new Encoder(Compression.NONE, "pool.bin");
        long t, size;
        if (whole) {
            UnifiedLog log = log(fresh(), config(), true);
            t = System.nanoTime();
            for (long i = 0; i < records; i++) log.appendAsLeader(e.batch(0, i, 1), 0);
            t = System.nanoTime() - t;
            size = written(log);
        } else {
            LogSegment log = made();
            t = System.nanoTime();
            for (long i = 0; i < records; i++) log.append(i, e.batch(i, i, 1));
            t = System.nanoTime() - t;
            size = written(log);
        }
        return new Sample(t, records, size);
    }

    static Sample durable(long records, int threads) throws Exception {
        UnifiedLog log = log(fresh(), config("flush.messages", 1L), true);
        List<Thread> all = new ArrayList<>();
        long t = System.nanoTime();
        for (int k = 0; k < threads; k++) {
            Thread thread = new Thread(() -> {
                try {
                    Encoder mine = new Encoder(Compression.NONE, "pool.bin");
                    for (long i = 0; i < records / threads; i++) log.appendAsLeader(mine.batch(0, i, 1), 0);
                } catch (Exception x) { throw new RuntimeException(x); }
            });
            all.add(thread);
            thread.start();
        }
        for (Thread thread : all) thread.join();
        t = System.nanoTime() - t;
        return new Sample(t, records, written(log));
    }

    // The segment without its indexes: by LogSegment.recover alone, or opening the whole log after an unclean stop.
    static Sample recover(boolean whole) throws Exception {
        Path dir = fresh();
        Files.createLink(dir.resolve(LOG), data.resolve("batched-0").resolve(LOG));
        if (whole) {
            long t = System.nanoTime();
            UnifiedLog log = log(dir, config(), false);
            t = System.nanoTime() - t;
            long size = written(log);
            return new Sample(t, size, size);
        }
        LogSegment s = LogSegment.open(dir.toFile(), 0, config(), Time.SYSTEM, true, 0, false, "");
        TopicPartition name = new TopicPartition("kafka", 0);
        ProducerStateManager producers = new ProducerStateManager(name, dir.toFile(), 300_000,
            new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(dir.toFile(), name, new LogDirFailureChannel(4),
            Optional.empty(), new Idle());
        long t = System.nanoTime();
        if (s.recover(producers, epochs) != 0) throw new IllegalStateException("truncated");
        t = System.nanoTime() - t;
        long size = written(s);
        return new Sample(t, size, size);
    }

    // The first records of a partition, 1 MiB at a time, as a consumer does that is given the bytes of a fetch.
    static Sample scan(int codec, long count) throws Exception {
        Path path = codec == 0 ? data.resolve("batched-0") : work.resolve("packed-" + CODECS[codec] + "-0");
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        long n = 0, t = System.nanoTime();
        try (FileRecords file = FileRecords.open(path.resolve(LOG).toFile(), false)) {
            for (int at = 0; n < count;) {
                buffer.clear().limit(Math.min(buffer.capacity(), file.sizeInBytes() - at));
                file.readInto(buffer, at);
                for (MutableRecordBatch b : MemoryRecords.readableRecords(buffer).batches()) {
                    b.ensureValid();
                    try (CloseableIterator<Record> records = b.streamingIterator(SUPPLIER)) {
                        while (records.hasNext()) {
                            Record r = records.next();
                            ByteBuffer v = r.value();
                            sink += r.offset() + r.timestamp() + r.keySize() + v.remaining() + v.get(v.position());
                            n++;
                        }
                    }
                    at += b.sizeInBytes();
                    if (n >= count) break;
                }
            }
        }
        return new Sample(System.nanoTime() - t, n, n);
    }

    // One pass of the cleaner over all segments but the active one.
    static Sample compact(int codec) throws Exception {
        Path dir = fresh(), from = codec == 0 ? data.resolve("compact-0") : work.resolve("dirty-" + CODECS[codec] + "-0");
        try (Stream<Path> files = Files.list(from)) {
            List<Path> all = files.sorted().toList();
            Path active = all.stream().filter(p -> p.toString().endsWith(".log")).reduce((a, b) -> b).get();
            for (Path p : all) {
                if (p.toString().endsWith(".log") && p != active) Files.createLink(dir.resolve(p.getFileName()), p);
                else Files.copy(p, dir.resolve(p.getFileName()));
            }
        }
        UnifiedLog log = log(dir, config("cleanup.policy", "compact"), true);
        log.updateHighWatermark(log.logEndOffset());
        if (cleaner == null)
            cleaner = new Cleaner(0, new SkimpyOffsetMap(128 << 20), 256 << 10, 1 << 20, 0.9,
                new Throttler(Double.MAX_VALUE, 300, "bench", "bytes", Time.SYSTEM), Time.SYSTEM, tp -> { });
        long active = log.activeSegment().size(), before = log.size() - active;
        long t = System.nanoTime();
        cleaner.clean(new LogToClean(log, 0, log.activeSegment().baseOffset(), false));
        t = System.nanoTime() - t;
        long after = log.size() - active;
        log.close();
        remove(dir);
        return new Sample(t, before, after);
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
            case "append_batches" -> appendBatches(a[0], (int) a[1], false);
            case "append_batches_single" -> appendBatches(a[0], 1, false);
            case "append_batches_leader" -> appendBatches(a[0], (int) a[1], true);
            case "extend" -> extend((int) a[0], a[1], false);
            case "extend_log" -> extend((int) a[0], a[1], true);
            case "append" -> append(a[0], false);
            case "append_log" -> append(a[0], true);
            case "durable" -> durable(a[0], THREADS);
            case "durable_alone" -> durable(a[0], 1);
            case "scan" -> scan((int) a[0], a[1]);
            case "compact" -> compact(0);
            case "compact_packed" -> compact((int) a[0]);
            case "recover" -> recover(false);
            case "recover_log" -> recover(true);
            default -> throw new IllegalArgumentException("unknown workload " + workload);
        };
    }

    public static void main(String[] args) throws Exception {
        data = Path.of(args[0]);
        sealed = Path.of(args[1]);
        work = Path.of(args[2]);
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
