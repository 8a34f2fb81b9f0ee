"""What topics a store has, where their partitions lie, and how both change: one change at a time, at once or
not at all."""

from __future__ import annotations

import contextlib
import os
import time
from itertools import takewhile
from pathlib import Path

from kstore.arguments import integer, warn
from kstore.config import LogConfig, in_python
from kstore.engine.io.synchronization import Mutex
from kstore.errors import (
    CorruptCheckpointError,
    CorruptFileError,
    KstoreError,
    LogFailedError,
    LogLockedError,
    LogNotFoundError,
)
from kstore.kinds import as_text
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_topic_id, topic_id_text
from kstore.log.files.layout import TopicPartition
from kstore.log.files.manifest import Manifest, converted, read_manifest, stamp_of, write_manifest
from kstore.log.files.topic_table import (
    MOST_PARTITIONS,
    Change,
    KnownTopic,
    TopicTable,
    merged,
    new_topic_id,
    newest,
)
from kstore.log.later import later
from kstore.log.recovery.report import DataLossWarning
from kstore.store.store_directory import StoreDirectory
from kstore.store.topic import Topic, checked_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any
    from uuid import UUID

    from kstore.log.files.manifest import Stamp
    from kstore.log.files.shared_session import require_local
    from kstore.remote.tiered_log import RemoteDirectories
else:
    later(globals(), {"kstore.log.files.shared_session": "require_local"})


class TopicCatalog:
    """The topics in some log directories. `config` holds for topics that do not say otherwise.

    `partitions` maps the partitions in use to their directories, `topics` names to topics; both are replaced
    whole, so threads may read them at any time. Whoever changes topics holds `changing`. `unfinished` says
    which change did not come to its end, "" if none.
    """

    def __init__(
        self,
        config: LogConfig,
        clock: Callable[[], int] | None = None,
        *,
        is_writing: bool = False,
        is_shared: bool = False,
    ) -> None:
        self.directories: list[StoreDirectory] = []
        self.config = config
        self.is_writing = is_writing
        self.is_shared = is_shared  # other processes may write, too
        self.look: Callable[[], None] = lambda: None  # takes in what they have changed
        self.catch_up = self.look  # and first waits until a change that is under way is finished
        self.changing = Mutex()
        self._clock = clock
        self.table = TopicTable()
        self.partitions: dict[TopicPartition, StoreDirectory] = {}
        self.topics: dict[str, Topic] = {}
        self.unfinished = ""
        self.is_changing = False  # a change is under way: it is not finished, and has not failed
        self.set_aside: dict[tuple[StoreDirectory, str], int] = {}  # what is to be removed, and when
        self.not_removed: dict[Path, str] = {}
        self._leaving = ""  # the topic that is being deleted: it must not be written
        self._configs: dict[str, LogConfig] = {}  # of topics, as the table says
        self._read: list[Stamp] = []  # which tables those were, for reading

    @classmethod
    def to_read(cls, directories: Iterable[StoreDirectory]) -> TopicCatalog:
        """The topics that there are now in these directories. OSError, KstoreError."""
        catalog = cls(LogConfig())
        catalog.take((each.path for each in directories), next((each.remote for each in directories), None))
        catalog.load_to_read()
        return catalog

    def now(self) -> int:
        """The time in ms, by the clock of the store."""
        return (
            time.time_ns() // 1_000_000 if self._clock is None else integer("the time in ms", self._clock())
        )

    # ---- what there is -------------------------------------------------------------------------------------

    def paths(self) -> tuple[Path, ...]:
        """The paths of the directories."""
        return tuple(directory.path for directory in self.directories)

    def live(self) -> list[StoreDirectory]:
        """The directories in use."""
        return [directory for directory in self.directories if not directory.failure]

    def named(self) -> str:
        """The paths of the directories, as text."""
        return ", ".join(map(str, self.paths()))

    def topic(self, name: str) -> Topic:
        """A topic by name. Errors say why there is none."""
        self.look()
        found = self.topics.get(name) if isinstance(name, str) else None
        if found is None:
            checked_name(name)
            if not self.is_writing:  # it may be new
                self.refresh()
                found = self.topics.get(name)
        if found is None:
            change = self.table.change
            if self.is_changing and name in (self._leaving, change and change.topic):
                raise LogNotFoundError(
                    f"topic {name} is just being made, changed or deleted in {self.named()}"
                )
            if self.unfinished and name in (self._leaving, change and change.topic):
                raise LogFailedError(
                    f"topic {name} is out of use until the next opening finishes this change: "
                    f"{self.unfinished}"
                )
            raise LogNotFoundError(self.no_topic(name))
        return found

    def was_deleted(self, topic: Topic) -> bool:
        """Whether another process has deleted a topic since it was looked up; it may have made another one of
        that name. Waits until a change that is under way is finished. OSError, KstoreError."""
        if not self.is_shared:
            return False
        self.catch_up()
        now = self.topics.get(topic.name)
        return now is None or now.id != topic.id

    def no_topic(self, name: str) -> str:
        """That there is no topic of a name, in words, with those that may be meant."""
        import difflib

        tp = layout.parse_directory(name)
        if tp is not None and tp.topic in self.topics:
            hint = f": {name} is partition {tp.partition} of topic {tp.topic}"
        elif near := difflib.get_close_matches(name, self.topics, 3):
            hint = f"; there is {', '.join(near)}"
        else:
            few = [each for each in self.topics if not each.startswith("__")][:5]
            hint = (
                f"; there {'are' if len(few) > 1 else 'is'} {', '.join(few)}"
                if few
                else ", which has no topics"
            )
            hint += ", and others" if len(self.topics) > 5 else ""
        return f"no topic {name} in {self.named()}{hint}"

    def require_all(self, topic: Topic, what: str) -> None:
        """LogFailedError unless all partitions of a topic are here."""
        if topic.missing:
            raise LogFailedError(
                f"topic {topic.name} cannot be {what}: its partitions {list(topic.missing)} are in none of "
                f"the directories in use, {self.named()}. Name the directory that has them; make one, "
                "empty, for a partition that is lost"
            )

    def missing(self) -> list[TopicPartition]:
        """Partitions of known topics that are in none of the directories in use."""
        return [TopicPartition(topic.name, n) for topic in self.topics.values() for n in topic.missing]

    def partition_paths(self) -> dict[TopicPartition, str]:
        """The paths of the partitions in use."""
        return {tp: directory.path_of(tp) for tp, directory in self.partitions.items()}

    def failed_directories(self) -> tuple[dict[Path, str], dict[TopicPartition, str]]:
        """The directories that are out of use, and the partitions whose directories are gone, with the
        reasons."""
        failed = {directory.path: directory.failure for directory in self.directories if directory.failure}
        gone: dict[TopicPartition, str] = {}
        for directory in self.live() if self.is_writing else ():
            try:
                found = directory.gone()
            except OSError as e:
                failed[directory.path] = str(e)
                continue
            for tp in found:
                if tp in self.partitions:  # it was not deleted meanwhile
                    gone[tp] = f"no partition directory at {directory.path_of(tp)}"
        return failed, gone

    def own_options(self, name: str) -> dict[str, str]:
        """What a topic says itself, in Kafka's notation. CorruptCheckpointError, OSError."""
        known = self.table.topics.get(name)
        return self._options_of_logs(name) if known is None else dict(known.options)

    def _options_of_logs(self, name: str) -> dict[str, str]:
        """What the first partition keeps that keeps something, of a topic that is not in the table: it
        was written by itself."""
        topic, there = self.topics.get(name), self.partitions
        own = () if topic is None else topic.partitions
        kept = (dict(read_manifest(there[tp].path_of(tp)).options) for tp in own if tp in there)
        return next(filter(None, kept), {})

    def topic_id(self, name: str) -> str:
        """The id of a topic, as text: a broker's, or that in the table; "" if it has none. A later topic of
        that name has another one. OSError."""
        found = self._id_in_files(name)
        return self._id_of(name) if found is None else topic_id_text(found)

    def uuid_of(self, name: str) -> UUID | None:
        """The id of a topic, or None if it has none. OSError."""
        from uuid import UUID  # imported here: few programs ask for ids

        found, own = self._id_in_files(name), self._id_of(name)
        return UUID(own) if found is None and own else found

    def _id_in_files(self, name: str) -> UUID | None:
        """The id that a broker gave to a topic."""
        topic, there = self.topics.get(name), self.partitions
        for tp in topic.partitions[:1] if topic is not None else ():
            with contextlib.suppress(FileNotFoundError, CorruptFileError, KeyError):
                return read_topic_id(f"{there[tp].path_of(tp)}/{layout.METADATA}")
        return None

    def config_of(self, name: str) -> LogConfig:
        """What holds for a topic. CorruptCheckpointError, OSError."""
        configs = self._configs  # before the options: if these change meanwhile, it is another one that holds
        config = configs.get(name)
        if config is None:
            own = self.own_options(name)
            config = configs[name] = self.config.replace(**in_python(own)) if own else self.config
        return config

    def checked_options(self, config: Mapping[str, Any]) -> dict[str, str]:
        """A topic's own options in Kafka's notation. InvalidConfigError."""
        checked = self.config.replace(**config)
        given = {name: getattr(checked, name) for name in config}
        options = {
            name.replace("_", "."): as_text(value) for name, value in given.items() if value is not None
        }
        in_python(options)  # those that no topic has are refused
        return options

    # ---- opening -------------------------------------------------------------------------------------------

    def take(self, paths: Iterable[Path], remote: RemoteDirectories | None = None) -> None:
        """Opens the directories; none, if one is locked: two stores that wait for each other's would wait for
        ever. LogLockedError, LogNotFoundError; KstoreError if they are to be shared and one is on a file
        system of the network; OSError if none can be used."""
        paths = list(paths)
        if self.is_shared:
            require_local(*paths)
        try:
            for path in paths:
                self.directories.append(StoreDirectory(path, remote))
                self.directories[-1].open(writing=self.is_writing, shared=self.is_shared)
        except (LogLockedError, LogNotFoundError):
            while self.directories:
                self.directories[-1].release()
                self.directories.pop()
            raise
        if not self.live():
            raise OSError(f"no log directory can be used: {self.directories[0].failure}")

    def release(self) -> None:
        """Unlocks the directories as they were found."""
        for directory in self.directories:
            directory.release()

    def refresh(self) -> None:
        """Takes in what other processes have changed. A store that reads lists its directories again.
        OSError, KstoreError."""
        self.look()
        if self.is_writing:
            return
        listed = [StoreDirectory(each.path, each.remote) for each in self.directories]
        for directory in listed:
            directory.open(writing=False)
        self.directories[:] = listed
        self.load_to_read()

    def load(self) -> None:
        """For writing: finishes what was decided, and gives all directories one table. What was set aside is
        removed after file_delete_delay_ms. CorruptCheckpointError if no table is sound, OSError."""
        due = self._removal_due()
        tables, damage = self._read_tables()
        if isinstance(damage, OSError):  # it may be newer than others
            raise damage
        if damage is not None:
            text = "the newest sound copy of the table of topics counts, which may lack the last change"
            warn(f"{text}: {damage}", DataLossWarning)
        topics = {tp.topic for directory in self.live() for tp in directory.partitions}
        self.table = merged([table for table in tables if table is not None], topics)
        if self.table.change is not None:
            self._finish_after_crash(due)
        elif any(table != self.table for table in tables):
            self.spread(self.live())
        self._list()
        for directory in self.live():
            for name in directory.deleted:
                self.set_aside.setdefault((directory, name), due)

    def take_in(self) -> None:
        """For writing: takes in what other processes have changed, and finishes what one that died has not.
        CorruptCheckpointError if no table is sound, OSError."""
        for directory in self.live():
            directory.read_names()
        self.read_again()
        if self.table.change is not None:
            self._finish_after_crash(self._removal_due())
        self._list()

    def load_to_read(self) -> None:
        """For reading: tables that cannot be read count for nothing, with a warning."""
        try:
            self.read_again()
        except (CorruptCheckpointError, OSError) as e:
            text = (
                "nothing is known of the topics but their directories, so partitions may be missing unnoticed"
            )
            warn(f"{text}: {e}", DataLossWarning)
        self._list()

    def read_again(self) -> None:
        """Takes the configuration of topics from the newest table, unless no table has changed.
        CorruptCheckpointError if none is sound, OSError."""
        stamps = [stamp_of(directory.path) for directory in self.live()]
        if stamps == self._read and None not in stamps:
            return
        tables, _ = self._read_tables()
        self.table = newest(table for table in tables if table is not None)
        self._configs, self._read = {}, stamps

    def _read_tables(self) -> tuple[list[TopicTable | None], CorruptCheckpointError | OSError | None]:
        """The tables of the directories in use, and what is wrong where one is None: another is sound."""
        tables: list[TopicTable | None] = []
        damage: CorruptCheckpointError | OSError | None = None
        for directory in self.live():
            try:
                read = converted if self.is_writing else read_manifest
                tables.append(read(directory.path).table)
            except (CorruptCheckpointError, OSError) as e:
                tables.append(None)
                damage = e
        if damage is not None and not any(tables):
            raise damage
        return tables, damage

    def _list(self) -> None:
        """What is in use: no partition of a change that is not finished."""
        known = self.table.before().topics
        change = self.table.change
        partitions: dict[TopicPartition, StoreDirectory] = {}
        for directory in self.live():
            for tp in directory.partitions:
                if tp.topic == self._leaving or (change is not None and change.concerns(tp)):
                    continue
                if tp in partitions:
                    raise KstoreError(
                        f"{tp} lies in {partitions[tp].path} and in {directory.path}: remove one of them"
                    )
                partitions[tp] = directory
        numbers: dict[str, list[int]] = {name: [] for name in known if name != self._leaving}
        for topic, partition in partitions:
            numbers.setdefault(topic, []).append(partition)
        self.partitions = partitions
        self.topics = {
            name: Topic(name, found, known[name].count, known[name].id)
            if name in known
            else Topic(name, found)
            for name, found in sorted(numbers.items())
        }

    def _finish_after_crash(self, due: int) -> None:
        change = self.table.change
        assert change is not None
        moved = self._moved(set(change.make.values()))
        change = change._replace(make={number: moved.get(path, path) for number, path in change.make.items()})
        self.table = self.table._replace(change=change)
        missing = sorted(set(change.make.values()) - {str(directory.path) for directory in self.live()})
        if missing:
            self.unfinished = (
                f"{change}: {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not in use. Name all "
                "directories of the store; one that was moved, and has another name now, by a link at its "
                "old path"
            )
            return
        if change.delete and any(directory.failure for directory in self.directories):
            self.unfinished = f"{change}: a directory is not in use"
            return
        # What lies elsewhere by now was made by this change, too: directories were exchanged.
        there = {tp.partition: str(d.path) for d in self.live() for tp in d.partitions if change.concerns(tp)}
        change = change._replace(
            make={number: there.get(number, path) for number, path in change.make.items()}
        )
        self.table = self.table._replace(change=change)
        try:
            self._carry_out(due)
        except OSError as e:  # `health` tells, and the next opening tries again
            self.unfinished = f"{change}: {e}"

    def _moved(self, paths: set[str]) -> dict[str, str]:
        """Where directories lie now that were moved or copied since these were their paths, or have others
        now: as links and their names tell."""
        live = {str(directory.path) for directory in self.live()}
        free = live - paths
        if len(self.directories) == len(paths) == len(free) == 1:
            return dict.fromkeys(paths, *free)
        # all of a copy, which may lie beside the original
        is_all = len(free) == len(self.directories) == len(paths)
        found = {path: other for path in paths - live for other in free if _is_same(path, other)}
        free -= set(found.values())
        for path in paths - set(found):
            if free and (is_all or not os.path.exists(path)):
                alike, best = max((_common_end(path, other), other) for other in free)
                if alike and sum(_common_end(path, other) == alike for other in free) == 1:
                    found[path] = best
        return found if len(set(found.values())) == len(found) else {}

    # ---- changing ------------------------------------------------------------------------------------------

    def check_changeable(self) -> None:
        """LogFailedError if a change is not finished, or a directory is no longer where it was."""
        for directory in self.live():
            directory.held.check_place()
        if self.unfinished:
            raise LogFailedError(
                f"a change of topics in {self.named()} is not finished, which the next opening does: "
                f"{self.unfinished}"
            )

    def change(self, what: str, steps: Callable[[], None]) -> None:
        """Makes a change of topics. If it fails before it is decided, nothing has happened. If it fails
        later, no topic is changed until the store is opened again, which finishes it.

        No `with` statement: what an interrupt raises just when one calls __enter__ or __exit__ would pass it
        by."""
        before = self.table
        try:
            self.unfinished = what
            self.is_changing = True
            steps()
            self.unfinished = ""
        except BaseException as e:
            self.unfinished = f"{what}: {type(e).__name__}: {e}"
            undone = False  # unless the table says that it is
            with contextlib.suppress(OSError, KstoreError):
                undone = read_manifest(self.live()[0].path).table == before
            if undone:
                self._leaving = ""
                self._list()
                self.unfinished = ""
            raise
        finally:
            self.is_changing = False

    def make(self, name: str, numbers: range, options: Mapping[str, str]) -> None:
        """Gives a topic these partitions, each in the directory that has the fewest.

        ValueError if another program has made one of them meanwhile: its records would be taken for those of
        a new one."""
        live = self.live()
        for number in numbers:
            for path in (directory.path_of(TopicPartition(name, number)) for directory in live):
                if os.path.lexists(path):  # a link to nowhere, too, is in the way
                    raise ValueError(f"partition {number} of topic {name} cannot be made: there is {path}")
        counts = [len(directory.partitions) for directory in live]
        paths = {}
        for number in numbers:
            at = counts.index(min(counts))
            counts[at] += 1
            paths[number] = str(live[at].path)
        change = Change(name, delete=False, make=paths)
        due = self._removal_due()
        self._check_free()

        def steps() -> None:
            known = KnownTopic(numbers.stop, options, self._id_of(name) if numbers.start else new_topic_id())
            self._decide(self.table.with_topic(name, known, change))
            self._carry_out(due)

        self.change(str(change), steps)

    def set_options(self, topic: Topic, options: Mapping[str, str]) -> None:
        """Gives a topic other options of its own; `spread` the table then. Within `change`. LogFailedError if
        the topic has more partitions than a table may say."""
        if topic.count > MOST_PARTITIONS:
            raise LogFailedError(
                f"topic {topic.name} cannot be changed: with its partition {topic.numbers[-1]} it has "
                f"{topic.count}, and at most {MOST_PARTITIONS} are possible"
            )
        known = KnownTopic(topic.count, options, self._id_of(topic.name))
        self._decide(self.table.with_topic(topic.name, known))

    def _id_of(self, name: str) -> str:
        known = self.table.topics.get(name)
        return "" if known is None else known.id

    def leave(self, topic: Topic) -> None:
        """Takes a topic out of use, before its deletion is decided: what is written from then on would be
        gone. Within `change`."""
        self._leaving = topic.name
        self._list()

    def delete(self, partitions: Sequence[TopicPartition]) -> None:
        """Deletes the topic that was left. Within `change`. LogLockedError if one of its partitions is still
        written."""
        due = self._removal_due()
        for directory in self.live():
            directory.refuse_writers(partitions)
        self._check_free()
        paths = {
            tp.partition: str(directory.path)
            for directory in self.live()
            for tp in directory.partitions
            if tp.topic == self._leaving
        }
        self._decide(self.table.without_topic(self._leaving, paths))
        self._carry_out(due)

    def spread(self, directories: Iterable[StoreDirectory]) -> None:
        """Gives these directories the table. OSError."""
        for directory in directories:
            write_manifest(directory.path, Manifest(table=self.table))

    def _check_free(self) -> None:
        """ReentrantCallError inside another change of a directory by this thread, as a signal handler may be:
        it could not be carried out."""
        for directory in self.live():
            directory.held.check_free()

    def _decide(self, table: TopicTable) -> None:
        """Writes a table to the first directory: from here on the change is made, whatever happens.
        OSError."""
        write_manifest(self.live()[0].path, Manifest(table=table))
        self.table = table
        self._configs = {}

    def _carry_out(self, due: int) -> None:
        """Does what the table says is to be done. What is deleted is removed when it is `due`. OSError."""
        change = self.table.change
        assert change is not None
        if change.delete:
            self._carry_out_deletion(change.topic, due)
        else:
            for directory in self.live():
                mine = [n for n, path in change.make.items() if path == str(directory.path)]
                if mine:
                    directory.make(TopicPartition(change.topic, number) for number in mine)
        finished = self.table.finished()
        for directory in self.live():
            write_manifest(directory.path, Manifest(table=finished))
        self.table = finished
        self._leaving = ""
        self._list()

    def _carry_out_deletion(self, topic: str, due: int) -> None:
        for directory in self.live():
            mine = [tp for tp in directory.partitions if tp.topic == topic]
            if mine:
                known = set(directory.deleted)
                directory.set_aside(mine)
                for name in set(directory.deleted) - known:
                    self.set_aside[directory, name] = due

    def _removal_due(self) -> int:
        """When what is deleted now is removed. Asked before a change is decided: the clock may raise."""
        return self.now() + self.config.file_delete_delay_ms

    def remove_due(self, now: int | None) -> None:
        """Removes what was set aside and whose time has come; None: all. What cannot be removed is tried
        again later."""
        for (directory, name), due in list(self.set_aside.items()):
            if now is not None and due > now:
                continue
            try:
                directory.remove(name)
            except (OSError, LogFailedError) as e:
                self.not_removed[directory.path / name] = str(e)
            else:
                self.not_removed.pop(directory.path / name, None)
                del self.set_aside[directory, name]


def _is_same(a: str, b: str) -> bool:
    """Whether two paths lead to one directory: links, or one file system mounted twice."""
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False


def _common_end(a: str, b: str) -> int:
    """How many last names of two paths are equal."""
    pairs = zip(reversed(Path(a).parts), reversed(Path(b).parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class Current:
    """The topics and partitions that there are now. The catalog of a store that reads stays as it is: its
    `refresh` is for the program."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.known = catalog  # what was there when it was asked for last
        self._listed: object = None
        self._ids: dict[str, str] = {}

    def topic_id(self, name: str) -> str:
        """The id of a topic in the catalog that was asked for last; "" if it has none. Ask before a log of it
        is opened: if the topic is deleted and created again in between, the id is that of the older one, and
        the next catalog shows it. OSError."""
        if self.known.partitions is not self._listed:
            self._listed, self._ids = self.known.partitions, {}
        if name not in self._ids:
            self._ids[name] = self.known.topic_id(name)
        return self._ids[name]

    def catalog(self) -> TopicCatalog:
        """What there is. Its `partitions` are another object if the directories have changed. OSError,
        KstoreError."""
        self.known.look()
        if not self.known.is_writing:  # else it always knows
            directories = self.known.directories
            now = [each.path.stat().st_mtime_ns for each in directories if each.path.is_dir()]
            if now != [each.listed_at for each in directories]:
                self.look_again()
        return self.known

    def look_again(self) -> None:
        """Lists the directories of a store that reads, whether or not their times have changed. OSError,
        KstoreError."""
        if not self.known.is_writing:
            self.known = TopicCatalog.to_read(self.known.directories)
