"""kstore.report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.arguments import path_text
from kstore.log.partition import PartitionLog
from kstore.log.recovery.presence import is_partition
from kstore.page import Page
from kstore.reporting.document import document
from kstore.reporting.gather import facts_of_log, facts_of_store
from kstore.reporting.sections import sections_of
from kstore.store.log_store import LogStore

if TYPE_CHECKING:
    from kstore.checking.finding import Report
    from kstore.typed import StrPath


def report(subject: StrPath | PartitionLog | LogStore, *, checked: Report | None = None) -> Page:
    """Return an HTML page about a partition, or about all partitions of a store or of a broker:
    `kstore.report("data").save("report.html")`.

    subject: the path of a partition, of a .log file or of a log directory, or an open log or store. For
        several directories, pass LogStore(first, second).
    checked: the result of kstore.check for it. The page then has the findings of this check.

    The page has the partitions by size, the segments with their states, the rate of appends, the sizes and
    codecs of batches, producers and open transactions, groups and their lag, the page cache, and the findings
    of the opening. It is one file, which loads nothing. It has names of topics and groups, offsets, sizes and
    times, and no keys or values.

    Nothing is written or locked, so a broker may be running. The headers of batches are read, and of records
    only those with the positions of groups. If the logs have more than 64 GiB, the headers of some segments
    only are read, and the page reports this.

    LogNotFoundError: there is no partition and no log directory. OSError: a directory cannot be listed.
        Partitions and files that cannot be read are findings on the page.
    """
    if isinstance(subject, PartitionLog):
        facts = facts_of_log(subject, checked)
    elif isinstance(subject, LogStore):
        facts = facts_of_store(subject, checked)
    elif is_partition(path_text("subject", subject)):
        with PartitionLog(subject) as log:
            facts = facts_of_log(log, checked)
    else:
        facts = facts_of_store(LogStore(subject), checked)
    return Page(document(facts, sections_of(facts)))
