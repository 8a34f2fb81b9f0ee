"""Prints the tables of docs/benchmarks.md from report/figures.json: python -m benchmarks.tables"""

import json
from pathlib import Path
from typing import Any

from benchmarks.report import short_time

ROWS = {  # figure: what the page calls it, and whom it names
    "crc32c_16KiB": ("CRC-32C of 16 KiB", "C three lanes"),
    "headers": ("walk of batch headers, one record each", "Kafka", "C"),
    "index_lookup": ("offset-index floor, one a call", "Kafka"),
    "read_one": ("one record at a random offset", "C", "Kafka"),
    "find_timestamp": ("first record at a random timestamp", "C", "Kafka"),
    "open_10000_segments": ("open 10,000 sealed segments", "C readdir+stat", "Kafka"),
    "iterate_records": ("iterate Record objects", "aiokafka"),
    "scan": ("scan to columns, CRC checked", "C", "Kafka", "krabka", "Arrow IPC"),
    "scan_2_threads": ("… on two threads", "1 thread", "C 2 threads", "Arrow IPC"),
    "scan_lz4": ("… of lz4 batches", "Kafka", "krabka"),
    "scan_snappy": ("… of snappy batches", "Kafka", "krabka"),
    "scan_zstd": ("… of zstd batches", "Kafka", "krabka"),
    "scan_offset_timestamp": ("offsets and timestamps alone, not packed", "four columns", "C two columns"),
    "scan_10_kib_views": ("10 KiB values as views", "pread and CRC"),
    "append_batches": ("append 16 KiB batches, CRC checked", "C", "Kafka", "krabka"),
    "extend_arrays": ("extend, 108-byte records from arrays", "C", "Kafka", "krabka"),
    "append": ("append, one record a call", "C pwrite", "Kafka", "krabka"),
    "durable_8_threads": ("durable append, 8 threads", "C", "Kafka", "krabka"),
    "recover": ("recover 1 GiB", "C", "Kafka", "krabka"),
    "compact": ("compact 1 GiB of 1 M keys", "C", "Kafka", "krabka"),
    "compact_lz4": ("… of lz4 batches, 128 MiB unpacked", "Kafka"),
    "compact_snappy": ("… of snappy batches", "Kafka"),
    "compact_zstd": ("… of zstd batches", "Kafka"),
    "compact_gzip": ("… of gzip batches", "Kafka"),
    "last_of_key": ("the last record of a random key", "get", "rocksdict"),
    "sendfile_cpu": ("sendfile, processor time", "sendfile"),
    "follow": ("from an append in one process to the Record in another", "socket"),
    "extend_stores": ("extend from lists, beside other stores", "lmdb", "sqlite3", "Arrow IPC", "Parquet"),
    "get_stores": ("a value by its offset, beside other stores", "lmdb", "sqlite3", "Arrow IPC"),
    "find_stores": ("an offset by its time, beside other stores", "lmdb", "sqlite3", "Arrow IPC"),
    "read_columns": ("columns of all records, beside files of columns", "Arrow IPC", "Parquet"),
    "spark_map_partitions": ("Spark: mapPartitions with numpy", "Parquet"),
    "spark_dataframe": ("Spark: data source", "ready-made", "Parquet"),
    "spark_write_from_jvm": ("Spark: write, rows of the JVM", "Parquet"),
}


def row(figure: dict[str, Any], work: str, *named: str) -> str:
    """A line of the table."""
    times = figure["median_ns"]
    unit = "/B" if figure["unit"] == "byte" else ""
    others = [f"{name} {short_time(times[name])}{unit}" for name in named if name in times]
    ratios = [
        f"{c['median']:.2f} x {c['against']}"
        if c["kind"] == "speed"
        else f"{c['median']:.2f} of {c['against']}'s time"
        for name in named
        for c in figure["comparisons"]
        if c["against"] == name
    ]
    ours = short_time(next(iter(times.values())))
    return f"| {work} | {ours}{unit} | {', '.join(others)} | {', '.join(ratios)} |"


def figures_table(report: dict[str, Any]) -> list[str]:
    """A line for each figure in ROWS that the report has."""
    figures = {figure["name"]: figure for figure in report["figures"]}
    return [row(figures[name], *words) for name, words in ROWS.items() if name in figures]


def growth_table(report: dict[str, Any]) -> list[str]:
    """A line for each curve whose cost grew faster than the work."""
    lines = []
    for curve in report["scaling"]:
        if curve["verdict"].startswith("GROWS"):
            factor = curve["growth"][0]
            lines.append(f"| {curve['name']} | {curve['against']} | {curve['counted']} | {factor:.1f} x |")
    return lines


if __name__ == "__main__":
    report = json.loads((Path(__file__).parent / "report" / "figures.json").read_text())
    print(*figures_table(report), "", *growth_table(report), sep="\n")
