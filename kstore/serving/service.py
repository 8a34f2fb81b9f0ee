"""Who answers which request, and `serve`, which starts a server."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from kstore.arguments import boolean, instance, integer, warn
from kstore.errors import KstoreError
from kstore.serving.administration import Administration
from kstore.serving.cluster import Cluster, api_versions
from kstore.serving.configs import Configs
from kstore.serving.connection import Limits
from kstore.serving.fetching import Fetcher
from kstore.serving.groups.coordinator import GroupCoordinator
from kstore.serving.log_dirs import LogDirs
from kstore.serving.lookups import Lookups
from kstore.serving.partitions import ReadPartitions, WrittenPartitions
from kstore.serving.producing import Producing
from kstore.serving.protocol.apis import API_VERSIONS, APIS
from kstore.serving.recorded_groups import RecordedGroups, init_producer_id
from kstore.serving.server import Server, is_loopback
from kstore.serving.transactions.coordinator import TransactionCoordinator
from kstore.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.serving.connection import Handler
    from kstore.serving.partitions import Partitions

_LOG = logging.getLogger("kstore.serving")
_TICK_SECONDS: Final = 0.5
KEYS: Final = {api.name: key for key, api in APIS.items()}


def serve(store: LogStore, host: str = "127.0.0.1", port: int = 0, *, create_topics: bool = False) -> Server:
    """Serve a store to Kafka clients, in threads of this process, until the returned Server is closed.

    host: the address of this machine to listen at. Default: 127.0.0.1, to which no other machine can connect.
        Other addresses cause a warning.
    port: the port. Default: a free one; `bootstrap_servers` of the server has it.
    create_topics: True creates a topic of one partition if a client asks for one that does not exist.
        Default: False.

    The clients see a cluster of one node without replication, TLS and passwords: everyone who can connect to
    the port can read, and write if the store is open for writing. If it is open for reading, another process
    may write the directories.

    Raises: OSError: the address cannot be used. TypeError, ValueError: an argument is wrong.
    """
    instance("store", store, LogStore)
    integer("port", port, 0, 2**16 - 1)
    boolean("create_topics", create_topics)
    service = Service(store, create_topics=create_topics)
    with ExitStack() as undo:
        undo.callback(service.close)
        server = Server(host, port, service.handlers, Limits(), service.close)
        undo.pop_all()
    if not is_loopback(server.host):
        doing = "read and write" if store.mode == "a" else "read"
        warn(f"other machines may reach {host}: without a password they can {doing} what is served")
    return server


class _Coordinators(NamedTuple):
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def handlers(self) -> dict[str, Handler]:
        return {**self.groups.handlers(), **self.transactions.handlers()}


class Service:
    """The handlers of a store's server, by API, and what they share.

    clock: the time in ms. state_partitions: the number of partitions of the internal topics, if they are
    created.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        create_topics: bool = False,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        state_partitions: int = 50,
    ) -> None:
        self._partitions: Partitions
        self._coordinators: _Coordinators | None = None
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="kstore-serve-groups", daemon=True)
        if store.mode == "a":
            self._partitions = WrittenPartitions(store)
            groups = GroupCoordinator(store, clock, partitions=state_partitions)
            transactions = TransactionCoordinator(store, groups, clock, partitions=state_partitions)
            self._coordinators = _Coordinators(groups, transactions)
            self._ticker.start()
        else:
            self._partitions = ReadPartitions(store)
        handlers = {KEYS[name]: handler for name, handler in self._named(create_topics).items()}
        handlers[API_VERSIONS] = api_versions(handlers)
        self.handlers: dict[int, Handler] = handlers

    def _named(self, create_topics: bool) -> dict[str, Handler]:
        partitions = self._partitions
        coordinators = self._coordinators
        lookups = Lookups(partitions)
        cluster = Cluster(partitions)
        administration, configs = Administration(partitions, cluster), Configs(partitions, cluster)
        if coordinators is not None:
            administration.on_delete = coordinators.groups.forget_topic
        if create_topics:
            cluster.create = administration.create_automatically
        return {
            "Metadata": cluster.metadata,
            "DescribeCluster": cluster.describe_cluster,
            "FindCoordinator": cluster.find_coordinator,
            "Fetch": Fetcher(partitions).fetch,
            "ListOffsets": lookups.list_offsets,
            "OffsetForLeaderEpoch": lookups.offset_for_leader_epoch,
            "DescribeConfigs": configs.describe_configs,
            "DescribeLogDirs": LogDirs(partitions).describe_log_dirs,
            # A store that is open for reading refuses these. librdkafka fetches only if Produce is offered.
            "Produce": Producing(partitions, coordinators and coordinators.transactions).produce,
            "CreateTopics": administration.create_topics,
            "DeleteTopics": administration.delete_topics,
            "CreatePartitions": administration.create_partitions,
            "DeleteRecords": administration.delete_records,
            "AlterConfigs": configs.alter_configs,
            "IncrementalAlterConfigs": configs.incremental_alter_configs,
            **(_recorded(partitions.store) if coordinators is None else coordinators.handlers()),
        }

    def tick(self) -> None:
        """Do what is due by the clock: a test has moved it."""
        if self._coordinators is not None:
            self._coordinators.groups.tick()
            self._coordinators.transactions.tick()

    def _tick_on(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            try:
                self.tick()
            except (KstoreError, OSError) as error:  # what failed is tried again
                _LOG.warning("groups and transactions: %s", error)

    def close(self) -> None:
        """Answer the requests that wait. The store stays open."""
        self._ended.set()
        if self._coordinators is not None:
            self._ticker.join()
            self._coordinators.groups.close()
        self._partitions.close()


def _recorded(store: LogStore) -> dict[str, Handler]:
    groups = RecordedGroups(store)
    return {
        "InitProducerId": init_producer_id,
        "JoinGroup": groups.join_group,
        "OffsetCommit": groups.offset_commit,
        "OffsetFetch": groups.offset_fetch,
        "ListGroups": groups.list_groups,
        "DescribeGroups": groups.describe_groups,
    }
