"""How the subcommands open a partition: the same options for all."""

import argparse

import kstore
from kstore.log.partition import PartitionLog


def add_open_arguments(parser: argparse.ArgumentParser) -> None:
    """The directory, and how to take it."""
    parser.add_argument("directory", metavar="DIR", help="partition directory, such as data/orders-0")
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="show every file as it lies, not what Kafka's recovery would leave",
    )
    parser.add_argument(
        "--index-interval-bytes",
        type=int,
        default=4096,
        metavar="BYTES",
        help="the topic's index.interval.bytes, for indexes made anew (default 4096)",
    )
    parser.add_argument(
        "--max-decompressed-bytes",
        type=int,
        default=256 << 20,
        metavar="BYTES",
        help="what one batch may unpack to (default 256 MiB)",
    )


def open_partition(args: argparse.Namespace) -> PartitionLog:
    """The log that these options name."""
    return kstore.open(
        args.directory,
        recover=not args.as_is,
        index_interval_bytes=args.index_interval_bytes,
        max_decompressed_bytes=args.max_decompressed_bytes,
    )
