"""A process that writes a log from several threads until it is killed, and says what was acknowledged."""

import random
import sys
import threading

import kstore


def main(directory: str, durability: str, seed: int) -> None:
    """Prints "offset number" for every append that returned. The value of number n is n in digits, and padding."""
    rng = random.Random(seed)
    log = kstore.open(
        directory,
        "a",
        durability=durability,
        internal_segment_bytes=rng.choice([2000, 20_000, 1 << 20]),
        segment_index_bytes=rng.choice([128, 4096, 1 << 20]),
        index_interval_bytes=rng.choice([50, 4096]),
        compression_type=rng.choice(["producer", "producer", "lz4", "zstd"]),
        segment_jitter_ms=0,
    )
    printing = threading.Lock()
    first = log.log_end_offset * 100_000

    def work(which: int) -> None:
        own = random.Random(seed * 10 + which)
        for n in range(which, 1 << 30, 4):
            number = first + n
            values = [b"%d" % number + b"-" * own.randrange(200)]
            if own.random() < 0.2:
                values *= own.randrange(1, 30)
                offset = log.extend(values, batch_bytes=own.choice([100, 1000]))[0]
            else:
                offset = log.append(values[0], b"%d" % number)
            with printing:
                sys.stdout.write("".join(f"{offset + i} {number}\n" for i in range(len(values))))
                sys.stdout.flush()
            if own.random() < 0.01:
                log.roll()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
