//! The crate krabka-log (Kafka's format in Rust), driven over stdin and stdout like limits.c:
//! usage: krabka-peer DATA WORK    then on stdin "WORKLOAD ARG...", on stdout "NANOSECONDS UNITS CHECKSUM" for each
use bytes::{Bytes, BytesMut};
use krabka_compression::CompressionType;
use krabka_log::{CleanupPolicy, CompactionContext, Log, LogConfig, Offset, Segment, VerbatimBatch};
use krabka_protocol::records::{validate_one_v2_batch, Record, RecordBatch, RecordBatchBorrowed};
use krabka_units::prelude::{kibibytes, mebibytes, ByteSizeExt as _};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

const VALUE: usize = 100;
const BATCH_RECORDS: i64 = 138;
const THREADS: u64 = 8;
const T0: i64 = 1_700_000_000_000; // timestamp of offset 0; ten records a millisecond
const LOG: &str = "00000000000000000000.log";

type Sample = (u128, u64, u64);

struct Peer {
    data: PathBuf,
    work: PathBuf,
    read: HashMap<u64, Log>, // what scan() has opened, by codec
}

/// Input in memory: the rows of a column file, and a key for each.
struct Columns {
    keys: Bytes,
    values: Bytes,
}

impl Columns {
    fn load(path: &Path) -> Columns {
        let values = Bytes::from(fs::read(path).unwrap());
        let mut keys = BytesMut::new();
        for i in 0..(values.len() / VALUE) as u64 {
            keys.extend_from_slice(&i.to_be_bytes());
        }
        Columns { keys: keys.freeze(), values }
    }

    /// One record object for each is the crate's only interface.
    fn fill(&self, batch: &mut RecordBatch, base: i64, n: i64) {
        let rows = self.keys.len() / 8;
        batch.records.clear();
        batch.last_offset_delta = (n - 1) as i32;
        batch.base_timestamp = T0 + base / 10;
        batch.max_timestamp = T0 + (base + n - 1) / 10;
        for i in base..base + n {
            let row = i as usize % rows;
            batch.records.push(Record {
                attributes: 0,
                timestamp_delta: T0 + i / 10 - batch.base_timestamp,
                offset_delta: (i - base) as i32,
                key: Some(self.keys.slice(row * 8..row * 8 + 8)),
                value: Some(self.values.slice(row * VALUE..row * VALUE + VALUE)),
                headers: Vec::new(),
            });
        }
    }
}

fn config() -> LogConfig {
    LogConfig { segment_size: mebibytes(1024), ..LogConfig::default() }
}

impl Peer {
    fn fresh(&self) -> PathBuf {
        let dir = self.work.join("krabka");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn columns(&self, compressed: bool) -> Columns {
        Columns::load(&self.data.join(if compressed { "json.bin" } else { "pool.bin" }))
    }

    /// Ends a turn: the size of the log that it wrote, which is removed.
    fn written(&self, log: Log) -> u64 {
        drop(log);
        let dir = self.work.join("krabka");
        let size = fs::metadata(dir.join(LOG)).unwrap().len();
        fs::remove_dir_all(dir).unwrap();
        size
    }

    fn append_batches(&self, bytes: u64) -> Sample {
        let mut raw = vec![0; bytes as usize];
        fs::File::open(self.data.join("batched-0").join(LOG)).unwrap().read_exact(&mut raw).unwrap();
        let all = Bytes::from(raw);
        let (mut ready, mut at) = (Vec::new(), 0);
        while at + 12 <= all.len() {
            let size = u32::from_be_bytes(all[at + 8..at + 12].try_into().unwrap()) as usize + 12;
            if at + size > all.len() {
                break;
            }
            let wire = all.slice(at..at + size);
            let header = validate_one_v2_batch(&wire).unwrap().header;
            ready.push(VerbatimBatch::from_header(header, wire.clone()));
            at += size;
        }
        let mut log = Log::open(self.fresh(), config()).unwrap();
        let t = Instant::now();
        for batch in &ready {
            validate_one_v2_batch(&batch.bytes).unwrap();
            log.append_verbatim(batch).unwrap();
        }
        let ns = t.elapsed().as_nanos();
        let size = self.written(log);
        (ns, size, size)
    }

    fn extend(&self, codec: u64, records: u64) -> Sample {
        let columns = self.columns(codec != 0);
        let compression = match codec {
            1 => CompressionType::Gzip,
            2 => CompressionType::Snappy,
            3 => CompressionType::Lz4,
            4 => CompressionType::Zstd,
            _ => CompressionType::None,
        };
        let mut log = Log::open(self.fresh(), config()).unwrap();
        let mut batch = RecordBatch::default();
        batch.attributes = batch.attributes.with_compression(compression);
        let t = Instant::now();
        for base in (0..records as i64).step_by(BATCH_RECORDS as usize) {
            columns.fill(&mut batch, base, BATCH_RECORDS);
            log.append(&mut batch).unwrap();
        }
        let ns = t.elapsed().as_nanos();
        let end = log.log_end_offset().0 as u64;
        let size = self.written(log);
        (ns, records, if codec == 0 { size } else { end })
    }

    fn append(&self, records: u64) -> Sample {
        let columns = self.columns(false);
        let mut log = Log::open(self.fresh(), config()).unwrap();
        let mut batch = RecordBatch::default();
        let t = Instant::now();
        for i in 0..records as i64 {
            columns.fill(&mut batch, i, 1);
            log.append(&mut batch).unwrap();
        }
        let ns = t.elapsed().as_nanos();
        (ns, records, self.written(log))
    }

    /// The crate has one writer and no queue: the threads share it under a lock.
    fn durable(&self, records: u64) -> Sample {
        let columns = self.columns(false);
        let log = Log::open(self.fresh(), LogConfig { flush_on_append: true, ..config() }).unwrap();
        let shared = Mutex::new(log);
        let t = Instant::now();
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    let mut batch = RecordBatch::default();
                    for i in 0..records / THREADS {
                        columns.fill(&mut batch, i as i64, 1);
                        shared.lock().unwrap().append(&mut batch).unwrap();
                    }
                });
            }
        });
        let ns = t.elapsed().as_nanos();
        (ns, records, self.written(shared.into_inner().unwrap()))
    }

    fn recover(&self) -> Sample {
        let dir = self.fresh();
        fs::hard_link(self.data.join("batched-0").join(LOG), dir.join(LOG)).unwrap();
        let size = fs::metadata(dir.join(LOG)).unwrap().len();
        let t = Instant::now();
        let segment = Segment::open_active(&dir, Offset(0), true).unwrap();
        let ns = t.elapsed().as_nanos();
        drop(segment);
        fs::remove_dir_all(dir).unwrap();
        (ns, size, size)
    }

    /// All segments but the active one.
    fn compact(&self) -> Sample {
        let dir = self.fresh();
        let mut logs: Vec<PathBuf> = Vec::new();
        for file in fs::read_dir(self.data.join("compact-0")).unwrap() {
            let path = file.unwrap().path();
            match path.extension() {
                Some(kind) if kind == "log" => logs.push(path),
                _ => drop(fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap()),
            }
        }
        logs.sort();
        let active = logs.pop().unwrap();
        let size = fs::metadata(&active).unwrap().len();
        fs::copy(&active, dir.join(active.file_name().unwrap())).unwrap();
        for path in logs {
            fs::hard_link(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
        let config = LogConfig { cleanup_policy: CleanupPolicy::Compact, ..config() };
        let mut log = Log::open(&dir, config).unwrap();
        let before = log.size().bytes_u64() - size;
        let context = CompactionContext { now: SystemTime::now(), last_stable_offset: log.log_end_offset() };
        let t = Instant::now();
        log.compact(&context).unwrap();
        let ns = t.elapsed().as_nanos();
        let after = log.size().bytes_u64() - size;
        drop(log);
        fs::remove_dir_all(dir).unwrap();
        (ns, before, after)
    }

    /// The first records of a partition, 1 MiB at a time.
    fn scan(&mut self, codec: u64, count: u64) -> Sample {
        let (data, work) = (&self.data, &self.work);
        let log = self.read.entry(codec).or_insert_with(|| {
            let from = match codec {
                0 => data.join("batched-0"),
                _ => work.join(format!("packed-{}-0", ["none", "gzip", "snappy", "lz4", "zstd"][codec as usize])),
            };
            let dir = work.join(format!("krabka-read-{codec}"));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            fs::hard_link(from.join(LOG), dir.join(LOG)).unwrap();
            Log::open(dir, config()).unwrap()
        });
        let end = log.log_end_offset();
        let (mut next, mut n, mut sum) = (Offset(0), 0, 0i64);
        let t = Instant::now();
        while n < count {
            let raw = log.read_raw(next, end, kibibytes(1024)).unwrap();
            let mut rest: &[u8] = &raw.bytes;
            while !rest.is_empty() && n < count {
                let batch = RecordBatchBorrowed::decode_borrow_with_policy(&mut rest, Default::default()).unwrap();
                let h = batch.header();
                let (base, time) = (h.base_offset.get(), h.base_timestamp.get());
                for r in batch.iter() {
                    let r = r.unwrap();
                    let v = r.value.unwrap();
                    sum += base + i64::from(r.offset_delta) + time + r.timestamp_delta;
                    sum += (r.key.unwrap().len() + v.len()) as i64 + i64::from(v[0]);
                    n += 1;
                }
                next = Offset(base + i64::from(h.last_offset_delta.get()) + 1);
            }
        }
        let ns = t.elapsed().as_nanos();
        std::hint::black_box(sum);
        (ns, n, n)
    }

    fn run(&mut self, workload: &str, a: &[u64]) -> Sample {
        match workload {
            "append_batches" => self.append_batches(a[0]),
            "extend" => self.extend(a[0], a[1]),
            "append" => self.append(a[0]),
            "durable" => self.durable(a[0]),
            "compact" => self.compact(),
            "recover" => self.recover(),
            "scan" => self.scan(a[0], a[1]),
            _ => panic!("unknown workload {workload}"),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut peer =
        Peer { data: PathBuf::from(&args[1]), work: PathBuf::from(&args[2]), read: HashMap::new() };
    println!("krabka-log 1.0.8");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let workload = words.next().unwrap();
        let numbers: Vec<u64> = words.map(|w| w.parse().unwrap()).collect();
        let (ns, units, sum) = peer.run(workload, &numbers);
        println!("{ns} {units} {sum}");
    }
}
