"""kstore serve."""

import argparse
import signal

from kstore.errors import visible
from kstore.serving.service import serve as start
from kstore.tools.numbers import whole
from kstore.tools.stores import add_store_arguments, open_reader, open_store, options_of
from kstore.tools.terminal import note
from kstore.tools.writing import add_config_argument, add_wait_argument

_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser, topic=False)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of this machine to listen at (default 127.0.0.1, which no other machine reaches)",
    )
    parser.add_argument(
        "--port",
        type=whole("a port", 0, 2**16 - 1),
        default=0,
        help="port to listen at (default: a free one)",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="let clients write, too; the directories are created if they do not exist, and locked",
    )
    parser.add_argument(
        "--create-topics",
        action="store_true",
        help="create a topic of one partition if a client asks for one that does not exist (with --write)",
    )
    parser.add_argument(
        "--durability",
        choices=["none", "group"],
        help="when to acknowledge: at once, or once the records are on the disk (default none, with --write)",
    )
    add_config_argument(parser)
    add_wait_argument(parser)


def serve(args: argparse.Namespace) -> int:
    """Serve a log directory to Kafka clients until SIGTERM or Ctrl-C. Prints the address. The server is one
    node, without replication, TLS and passwords: for reading a directory and for tests, not to replace a
    broker."""
    if not args.write and (args.create_topics or args.durability or args.config):
        raise ValueError("--create-topics, --durability and --config need --write")
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # so that a thread can wait for them
    store = (
        open_store(
            args, make=True, background=True, durability=args.durability or "none", **options_of(args.config)
        )
        if args.write
        else open_reader(args)
    )
    with store, start(store, args.host, args.port, create_topics=args.create_topics) as server:
        mode = "reading and writing" if args.write else "reading"
        note(f"for {mode}; one node, no replication, no TLS, no SASL: everyone who can connect may use it")
        print(visible(server.bootstrap_servers), flush=True)
        signal.sigwait(_SIGNALS)
    return 0
