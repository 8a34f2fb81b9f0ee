"""A process that writes until it is killed; it prints the log end offset after every append that returned."""

import random
import sys

import kstore
from tests.helpers.markers import marker
from tests.kafka.jvm import NOW
from tests.kafka.shapes import encoded


def main(directory: str, durability: str, seed: str) -> None:
    rnd = random.Random(seed)
    config = kstore.LogConfig(internal_segment_bytes=200_000, index_interval_bytes=500)
    log = kstore.LogWriter(directory, config, durability=durability)
    sequence, running = 0, False
    while True:
        kind = rnd.randrange(4)
        if kind == 0:
            log.append(rnd.randbytes(rnd.randrange(100)))
        elif kind == 1:
            log.extend([rnd.randbytes(rnd.randrange(2000))] * 50, batch_bytes=5000)
        elif kind == 2 or not running:
            count = rnd.randrange(1, 20)
            options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
            codec = rnd.choice(["none", "lz4", "zstd"])
            log.append_batches(encoded(rnd, count, codec=codec, transactional=True, **options))
            sequence += count
            running = True
        else:
            end = marker(rnd.choice(["ABORT", "COMMIT"]), 5, NOW)
            log.append_batches(end, origin="coordinator", transaction_version=1)
            running = False
        sys.stdout.write(f"{log.log_end_offset}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
