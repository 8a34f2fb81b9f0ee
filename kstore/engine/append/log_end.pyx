# cython: binding=False, embedsignature=True
"""The end of a log that is open for writing: which thread may change it, its segments, its log end offset,
and how far it is durable.
"""

import weakref

from cpython.pythread cimport PyThread_get_thread_ident
from cython cimport final, no_gc_clear
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from kstore.engine.append.shared_end cimport (
    BROKEN_APPEND,
    BROKEN_CHANGE,
    KS_LOCK_INHERITED,
    SharedEnd,
    ks_moment,
)
from kstore.engine.io.file cimport File
from kstore.engine.io.traffic cimport monotonic_ns, took
from kstore.engine.io.synchronization cimport holds_inner
from kstore.engine.io.owned_lock cimport (
    ks_is_ending,
    ks_owned_lock_acquire,
    ks_owned_lock_destroy,
    ks_owned_lock_init,
    ks_owned_lock_is_mine,
    ks_owned_lock_release,
    ks_owned_lock_try,
)
from kstore.engine.segment.active_segment cimport ActiveSegment

from kstore.arguments import instance
from kstore.engine.io.directory import sync_directory
from kstore.engine.io.file import sync_file
from kstore.engine.io.synchronization import ENDING as _ENDING, EventFd
from kstore.errors import LogClosedError, LogFailedError, LogNotFoundError, ReentrantCallError


cdef int sync_all(list files) except -1:
    """Brings files to the disk: open ones, or paths, of which those that retention has removed need it no
    longer."""
    for file in files:
        if isinstance(file, str):
            sync_file(file)
        else:
            file.sync()
    return 0


@no_gc_clear
cdef class Held:
    """`with log_end.held():` for Python code that changes the log."""

    cdef LogEnd log_end
    cdef bint looks
    cdef bint entered

    def __enter__(self):
        if self.log_end is None:
            raise TypeError("only a log makes these")
        self.log_end.take_mutex(self.looks)
        self.entered = True

    def __exit__(self, kind, error, trace):  # not *error: there may be no memory for a tuple
        if self.entered:  # what was not taken is not given back
            self.entered = False
            self.log_end.release()


@no_gc_clear
cdef class UnfinishedChange:
    """`with log_end.unfinished("the roll") as change:` for a change in several steps; the mutex is held.

    An exception of any kind that ends it in the middle leaves a log that refuses to write, unless everything
    is again as it was before: `change.undone()` was called, or `change.undo` returned True. Nothing else is
    known of the state then. The log says so from the first step on, so it does not matter where an interrupt or
    a lack of memory strikes.
    """

    cdef LogEnd log_end
    cdef public object undo  # called after an exception; None once the change cannot be taken back
    cdef str what
    cdef str outer
    cdef bint is_append
    cdef bint is_undone

    def __enter__(self):
        if self.log_end is None:
            raise TypeError("only a log makes these")
        self.outer = self.log_end.change
        self.log_end.change = self.what
        if self.log_end.shared is not None:
            self.log_end.shared.state.broken |= BROKEN_CHANGE
        return self

    def undone(self):
        """Everything is again as it was before."""
        self.is_undone = True

    def __exit__(self, kind, error, trace):
        if self.log_end is None:
            return
        try:
            if kind is not None and self.undo is not None and self.undo():
                self.is_undone = True
        finally:
            if kind is None or self.is_undone:
                self.log_end.change = self.outer
                if self.outer is None:
                    self.log_end.end_change(self.is_append)
            else:
                self.log_end.refuse(f"{self.what} was not finished: {kind.__name__}: {error}")


@final
@no_gc_clear
cdef class LogEnd:
    """The state of a log's end, for the objects that append there and those that change its segments.

    Only a thread that has entered `held()` changes it. `segments`, `offset`, `durable_offset` and `refusal`
    can be read without it.
    """

    def __cinit__(self):
        ks_gate_init(&self.commit)
        ks_owned_lock_init(&self.mutex)
        self.unsynced = []
        self.of_others = []
        self.unsynced_from = self.syncing_from = self.of_others_from = INT64_MAX
        self.sealed = ()
        self.is_closed = True
        self.known_epoch = -1

    def __dealloc__(self):
        ks_gate_destroy(&self.commit)
        ks_owned_lock_destroy(&self.mutex)

    def open(self, sealed not None, ActiveSegment active not None, int64_t offset, int64_t durable_offset):
        """Opens the log: batches are appended to `active` from `offset` on."""
        self.publish(sealed, active)
        self.offset = offset
        self.commit.reached = durable_offset
        self.is_closed = False

    def close(self):
        """Nothing is appended any more; the mutex is held, or no other thread has the log."""
        self.is_closed = True

    # ---- changes -------------------------------------------------------------------------------------------

    def held(self, *, bint looks=True):
        """Holds the mutex in a `with` block. looks: takes in what other processes have done to a shared log, or
        raises what keeps it from that. ReentrantCallError."""
        cdef Held held = Held.__new__(Held)
        held.log_end = self
        held.looks = looks
        return held

    def unfinished(self, str what, *, bint is_append=False, undo=None):
        """A change in several steps; see UnfinishedChange. is_append: other processes need not take in more than
        the end of the log, and its producers. undo: takes the steps back if one fails; True if that is done."""
        cdef UnfinishedChange change = UnfinishedChange.__new__(UnfinishedChange)
        change.log_end = self
        change.what = what
        change.is_append = is_append
        change.undo = undo
        return change

    def publish(self, sealed not None, ActiveSegment active not None):
        """The segments are these from here on, for appends and readers; the mutex is held."""
        self.follow(sealed, active)
        if self.shared is not None:
            active.prepare()  # the others map the index files
        self.note_change()

    def follow(self, sealed not None, ActiveSegment active):
        """As `publish`, for segments that other processes know."""
        self.segments = (sealed, active)
        self.sealed = sealed
        self.active = active

    def move(self, int64_t offset, int64_t durable_offset):
        """Another log end offset, and what is durable at most; the mutex is held."""
        self.offset = offset
        self.commit.reached = min(self.commit.reached, durable_offset)
        self.sync_ceiling = min(self.sync_ceiling, durable_offset)
        self.known_epoch = -1
        if self.shared is not None:
            if self.shared.cuts == self.shared.state.cuts:
                self.shared.cuts += 1
            self.shared.state.cuts += 1
            self.shared.state.durable = self.commit.reached
        self.note_change()

    def refuse(self, str why):
        """From here on nothing is written any more."""
        self.failure = self.failure or why

    @property
    def refusal(self):
        """Why nothing is written any more, or None."""
        if self.failure is not None:
            return self.failure
        if self.commit.failed:
            return "a sync failed"
        if self.change is not None:
            return f"{self.change} was not finished"
        return self.lost_index

    @property
    def settled_refusal(self):
        """Why nothing is written any more, or None. A change that another thread is in the middle of does not
        count."""
        if self.refusal is None:
            return None
        try:
            self.acquire()
        except ReentrantCallError:  # it is this thread's
            return None
        try:
            return self.refusal
        finally:
            self.release()

    @property
    def lost_index(self):
        """Which index file another program has shortened, and that it has; None if none is known."""
        return None if self.active is None else self.active.lost_index()

    cpdef int check_usable(self) except -1:
        """LogClosedError or LogFailedError, if nothing may be written; the mutex is held."""
        if self.is_closed or self.active is None:  # None: it was never opened
            if self.was_deleted:
                self.check_there()
            raise LogClosedError("the log is closed" if self.active is None else f"{self.active.directory} is closed")
        if self.active.is_lost():
            self.refuse(self.active.lost_index())
        if self.failure is not None or self.commit.failed or self.change is not None:
            self.check_there()
            raise LogFailedError(f"nothing is written until the log is opened again: {self.refusal}")
        return 0

    # ---- the mutex -----------------------------------------------------------------------------------------

    cdef int acquire(self) except -1:
        return self.take_mutex(True)

    cdef int take_mutex(self, bint looks) except -1:
        if not ks_owned_lock_try(&self.mutex):
            if holds_inner() or not ks_owned_lock_acquire(&self.mutex):
                self.refuse_reentrance()
                raise LogFailedError(_ENDING)
        if self.shared is not None:
            self.enter_shared(looks)
        return 0

    cpdef int refuse_reentrance(self) except -1:
        """ReentrantCallError if this thread would have to wait for itself: it has the mutex, or syncs for
        all, or is inside a lock for which a thread that has the mutex may be waiting."""
        if ks_owned_lock_is_mine(&self.mutex) or self.leader == PyThread_get_thread_ident() or holds_inner():
            raise ReentrantCallError(
                "the log was called from within itself: by a signal handler, a finalizer or its clock"
            )
        return 0

    cdef void release(self) noexcept:
        if self.shared is not None:
            self.leave_shared()
        ks_owned_lock_release(&self.mutex)
        if self.waiting is not None:
            self.notify()

    cdef void end_append(self) noexcept:
        """Forgets what an append has staged and not written, and lets the mutex go."""
        if self.active is not None and self.active.staged.size != self.active.published.size:
            self.active.unstage()
        self.release()

    cdef int notify(self) except -1:
        waiting, self.waiting = self.waiting, None
        for known in waiting:
            event = known()
            if event is not None:
                event.set()
        return 0

    def notify_at_change(self, event):
        """Sets this event once, after the log has next been changed or closed, if it still exists then."""
        known = weakref.ref(instance("event", event, EventFd))
        waiting = self.waiting or ()
        if known not in waiting:
            self.waiting = [other for other in waiting if other() is not None] + [known]

    def after_fork(self):
        """In a child of fork, threads that it does not have may have held the locks. Nothing is written there
        any more."""
        ks_owned_lock_init(&self.mutex)
        self.leader = 0
        ks_gate_init(&self.commit)
        self.commit.failed = 1
        self.failure = "it was opened in another process"
        self.shared = None
        if self.active is not None:
            self.active.after_fork()

    # ---- other processes -----------------------------------------------------------------------------------

    def share(self, SharedEnd shared not None, others not None, *, bint is_first):
        """Shares the open log with other processes; no other process enters or leaves meanwhile.

        `others` is called with the mutex held, before anything else is done with a log that another process
        has changed: others.reload(base_offset) if it has changed more than the end, such as the segments;
        base_offset is that of the active segment, and the result what `publish` takes. others.recover(base_offset,
        log_start_offset) if it has broken a change off; what is before base_offset was not touched.
        others.reload_producers(anew=..., have_appended=...) if segments have changed, or producers have
        appended."""
        self.others = others
        self.shared = shared
        if is_first:
            self.active.prepare()
            shared.state.durable = self.commit.reached
            shared.changes = shared.state.changes = 1
            self.publish_moment()

    def join(self, SharedEnd shared not None, others not None):
        """Opens a log that other processes write; see `share`. What they have written is taken in. After any
        exception the caller calls `close` and `unshare`."""
        self.is_closed = False
        self.share(shared, others, is_first=False)
        self.acquire()
        self.release()
        if self.active is None:  # nothing was taken in
            raise LogFailedError(self.failure)

    @property
    def is_behind(self):
        """Whether other processes have changed anything that this one has not taken in."""
        return self.shared is not None and self.shared.is_behind()

    def unshare(self):
        """This process leaves the others; the log was closed."""
        if self.shared is not None and ks_owned_lock_is_mine(&self.mutex):
            self.leave_shared()
        self.was_deleted = self.is_deleted
        self.shared = None
        self.others = None

    def note_change(self):
        """The others must take in more than the end of the log; the mutex is held."""
        if self.shared is not None:
            if self.shared.changes == self.shared.state.changes:
                self.shared.changes += 1
            self.shared.state.changes += 1

    cdef int end_change(self, bint is_append) except -1:
        """A change in several steps is finished. The steps are in this order because a process that is killed in
        between leaves a change broken off."""
        if self.shared is not None:
            if not is_append:
                self.note_change()
            self.publish_moment()
            self.shared.state.broken &= ~BROKEN_CHANGE
        return 0

    def note_stored(self, int64_t recovery_point):
        """This is the recovery point in the checkpoint; the mutex is held."""
        if self.shared is not None:
            self.shared.state.stored = recovery_point

    @property
    def stored(self):
        """The recovery point in the checkpoint of a shared log, at most; -1 if the log is not shared."""
        return -1 if self.shared is None else self.shared.state.stored

    def note_producers(self):
        """The others must take in what producers have appended; the mutex is held."""
        if self.shared is not None:
            self.shared.state.producers += 1
            self.shared.producers = self.shared.state.producers

    @property
    def is_deleted(self):
        """Whether another process has deleted the topic of a shared log."""
        return self.was_deleted or (self.shared is not None and self.shared.state.is_deleted != 0)

    cdef int check_there(self) except -1:
        """LogNotFoundError if another process has deleted the topic."""
        if self.is_deleted and self.active is not None:
            raise LogNotFoundError(f"another process has deleted the topic of {self.active.directory}")
        return 0

    def look(self):
        """Takes in what other processes have changed, unless this thread is inside a change."""
        if self.shared is None or self.is_closed or not self.shared.is_behind() or self.failure is not None:
            return
        if ks_owned_lock_is_mine(&self.mutex) or holds_inner():
            return
        self.acquire()
        self.release()

    cdef int enter_shared(self, bint looks) except -1:
        """The second step of `acquire`. looks: takes in what the other processes have done."""
        cdef SharedEnd shared = self.shared
        cdef bint has_lock = False
        try:
            if shared.acquire() == KS_LOCK_INHERITED:
                shared.state.broken |= BROKEN_APPEND
            has_lock = True
            if not shared.is_whole():
                self.refuse(f"{shared.file.path} was shortened or damaged by another program")
            elif looks and shared.is_behind():
                self.look_at_others()
            self.is_in_step = not shared.is_behind()
        except BaseException:
            if has_lock:
                shared.release()
            ks_owned_lock_release(&self.mutex)
            raise
        return 0

    cdef int look_at_others(self) except -1:
        """Takes in what other processes have changed, and repairs what one that died has left."""
        cdef SharedEnd shared = self.shared
        cdef bint joins = self.active is None
        if self.is_closed or self.failure is not None or self.change is not None:
            return 0
        if shared.state.is_deleted:
            self.refuse("another process has deleted the topic")
        elif not shared.is_sound():
            self.refuse(f"{shared.file.path} was damaged by another program")
        elif shared.state.has_failed and not joins:
            if shared.state.broken == 0:  # it can be read
                self.take_in()
            self.refuse("a sync failed in another process")
        elif shared.state.has_failed or shared.state.broken & BROKEN_CHANGE:
            self.recover_for_others(shared.state.has_failed != 0)
        else:
            self.take_in()
        return 0

    cdef int recover_for_others(self, bint has_failed) except -1:
        """Recovers the log, because a process has broken a change off. has_failed: a sync has failed, so what was
        not durable must be read again.

        All that the others look at is changed before `broken`: if this process is killed, the next one begins
        again."""
        cdef SharedEnd shared = self.shared
        cdef int64_t base_offset = shared.now().base_offset, durable = shared.state.durable
        if has_failed:
            base_offset = min(base_offset, shared.state.stored)
            durable = min(durable, base_offset)
        self.generation = shared.now().generation
        self.others.recover(base_offset, shared.now().start)
        if self.failure is not None:
            return 0
        self.commit.reached = shared.state.durable = min(durable, self.offset)
        self.sync_ceiling = min(self.sync_ceiling, self.commit.reached)
        self.known_epoch = -1
        shared.state.producers += 1
        shared.state.cuts += 1
        shared.state.changes += 1
        self.publish_moment()
        shared.cuts = shared.state.cuts
        shared.changes = shared.state.changes
        shared.producers = shared.state.producers
        shared.state.has_failed = 0
        shared.state.broken = 0
        return 0

    cdef int take_in(self) except -1:
        """The log is as other processes have made it, and one that died inside an append has left it."""
        cdef SharedEnd shared = self.shared
        cdef ks_moment *moment = shared.now()
        cdef bint has_changed = shared.changes != shared.state.changes, repairs = shared.state.broken != 0
        cdef bint is_anew = self.active is None or shared.cuts != shared.state.cuts
        cdef ActiveSegment active = self.active
        sealed = self.sealed
        ks_gate_set(&self.commit, shared.state.durable)
        if is_anew:
            self.sync_ceiling = min(self.sync_ceiling, shared.state.durable)
        if has_changed:
            sealed, active = self.others.reload(moment.base_offset)
        if moment.base_offset != active.base_offset:
            raise LogFailedError(f"{shared.file.path} does not fit {active.path}")
        active.take(&moment.extent)
        if repairs:
            active.take_rest()
        self.start = moment.start
        self.generation = moment.generation
        self.offset = max(moment.offset, active.published.next_offset)
        if has_changed:  # now: readers, who take no lock, must not see a segment that seems empty
            self.follow(sealed, active)
            self.known_epoch = -1
        if repairs:
            shared.state.producers += 1
        if has_changed or shared.producers != shared.state.producers:
            self.others.reload_producers(anew=is_anew, have_appended=shared.producers != shared.state.producers)
        shared.producers = shared.state.producers
        shared.cuts = shared.state.cuts
        shared.changes = shared.state.changes
        shared.moves = shared.state.moves
        shared.state.broken = 0
        return 0

    cdef void moment_now(self, ks_moment *moment) noexcept:
        moment.base_offset = self.active.base_offset
        moment.offset = self.offset
        moment.start = self.start
        moment.generation = self.generation
        moment.extent = self.active.published

    cdef void publish_moment(self) noexcept:
        cdef ks_moment moment
        self.moment_now(&moment)
        self.shared.publish(&moment)

    cdef void leave_shared(self) noexcept:
        """The first step of `release`: the others see what was appended."""
        cdef SharedEnd shared = self.shared
        cdef ks_moment *before = shared.now()
        if self.change is not None or (self.failure is not None and shared.state.has_failed == 0):
            if not self.has_told:
                self.has_told = True
                shared.state.broken |= BROKEN_CHANGE
        elif self.is_in_step and self.active is not None and (
            before.extent.size != self.active.published.size
            or before.offset != self.offset
            or before.base_offset != self.active.base_offset
            or before.start != self.start
            or before.extent.next_offset != self.active.published.next_offset
            or before.extent.offset_entries != self.active.published.offset_entries
            or before.extent.time_entries != self.active.published.time_entries
        ):
            self.publish_moment()
        shared.release()

    # ---- durability ----------------------------------------------------------------------------------------

    @property
    def durable_offset(self):
        """Every record below this offset is on the disk."""
        return self.commit.reached

    @property
    def recovery_point(self):
        """Below this offset every file is on the disk, and its name: no opening needs to look there."""
        return min(self.commit.reached, self.unsynced_from, self.of_others_from, self.syncing_from, self.offset)

    def owe_sync(self, list files, bint names, int64_t base_offset=INT64_MAX):
        """Files, open ones or paths, and perhaps names, that the next sync must bring to the disk first:
        those of a segment that was sealed, where `base_offset` is given."""
        self.unsynced_from = min(self.unsynced_from, base_offset)
        self.unsynced = self.unsynced + [file for file in files if file not in self.unsynced]
        self.names_unsynced = self.names_unsynced or names

    def owe_sync_of_others(self, list paths, int64_t base_offset=INT64_MAX):
        """The files of all segments, from the one at `base_offset` on, that other processes have made and perhaps
        not brought to the disk; the next sync must do that first."""
        self.of_others = paths
        self.of_others_from = base_offset
        self.names_unsynced = True

    cdef list owed(self):
        """What a sync must bring to the disk first; it is not owed any more."""
        files = self.unsynced + self.of_others
        self.unsynced, self.of_others = [], []
        self.unsynced_from = self.of_others_from = INT64_MAX
        return files

    @property
    def owed_count(self):
        """How many files the next sync must bring to the disk; each of them is open until then."""
        return len(self.unsynced)

    def sync_owed(self):
        """Brings to the disk what the next sync would have to; the mutex is held. OSError; then nothing
        is written any more, because the system may have dropped some of it."""
        try:
            sync_all(self.unsynced + self.of_others)
            if self.names_unsynced:
                sync_directory(self.active.directory)
        except OSError as e:
            self.fail_sync(e)
            raise
        self.owed()
        self.names_unsynced = False

    def gather_here(self, bint begins):
        """What this thread appends is not waited for: it calls wait_until_durable, for many at once."""
        self.gathering = PyThread_get_thread_ident() if begins else 0

    def wait_until_durable(self, int64_t offset):
        """Returns when every record below `offset` is on the disk. ValueError above the log end offset."""
        if offset > self.offset:
            raise ValueError(f"offset {offset} is above the log end offset {self.offset}")
        self.wait_durable(offset)

    cdef int enter_gate(self, int64_t offset) except -2:
        """What ks_gate_enter() tells, unless it would wait for ever: for this thread (ReentrantCallError), or
        for one that leads and was stopped, because the interpreter ends (LogFailedError)."""
        cdef int status
        self.refuse_reentrance()  # another thread may lead, and wait for the mutex
        if self.commit.leading and ks_is_ending():
            raise LogFailedError(_ENDING)
        with nogil:
            status = ks_gate_enter(&self.commit, offset)
        return status

    cdef int wait_durable(self, int64_t offset) except -1:
        """Returns when everything below `offset` is on the disk. One thread syncs for all that wait."""
        cdef int status
        while self.commit.reached < offset <= self.offset:  # above: another process has taken the records back
            status = self.enter_gate(offset)
            if status == 0:
                break
            if status < 0:
                self.check_usable()
            self.lead(False, offset)
            if self.shared is None:
                break
        return 0

    def sync_sealed(self):
        """Brings the sealed segments to the disk: all of their files, and names. `durable_offset` is only
        about their records."""
        if self.active is None:
            raise LogClosedError("the log was not opened")
        if self.enter_gate(INT64_MAX) < 0:
            self.check_usable()
        self.lead(True, INT64_MAX)

    cdef int lead(self, bint sealed, int64_t offset) except -1:
        """Syncs for all that wait in the gate, which this thread has entered, at least what lies below
        `offset`. `sealed`: the segments that were sealed are enough."""
        cdef int64_t reached = -1
        self.leader = PyThread_get_thread_ident()
        try:
            reached = self.sync_with_others(sealed, offset) if self.shared is not None else self.sync_once(sealed)
        finally:
            self.leader = 0
            ks_gate_leave(&self.commit, reached, reached < 0 and self.failure is not None)
        return 0

    def drain(self):
        """Waits until no sync is under way any more; the log was closed, so none will begin."""
        if self.enter_gate(INT64_MAX) > 0:
            ks_gate_leave(&self.commit, -1, 0)

    cdef int64_t sync_with_others(self, bint sealed, int64_t offset) except -1:
        """As `sync_once`, if no other process has synced what lies below `offset` meanwhile."""
        cdef SharedEnd shared = self.shared
        cdef int64_t reached
        cdef uint64_t cuts
        if not shared.begin_sync(offset):
            return shared.state.durable
        try:
            cuts = shared.state.cuts
            reached = self.sync_once(sealed)
            self.take_mutex(False)
            try:
                if self.shared is None:  # it has left the others meanwhile
                    return reached
                if cuts == shared.state.cuts:
                    shared.state.durable = max(shared.state.durable, reached)
                return shared.state.durable
            finally:
                self.release()
        finally:
            shared.end_sync()

    cdef void fail_sync(self, object error) noexcept:
        """Nothing is written any more, by no process."""
        if self.shared is not None:
            self.shared.state.has_failed = 1
        self.failure = "a sync failed"
        self.failure = f"a sync failed: {error}"

    cdef int64_t sync_once(self, bint sealed) except -1:
        """Syncs what is written now, and returns the offset that is durable with it. Any failure is final:
        the system may have dropped what was to be written."""
        cdef File file
        cdef int64_t reached, began = monotonic_ns()
        cdef int status
        self.acquire()
        try:
            self.check_usable()
            reached = self.active.base_offset if sealed else self.offset
            file = None if sealed else self.active.log
            self.syncing_from = min(self.unsynced_from, self.of_others_from)
            older, names = self.owed(), self.names_unsynced
            self.names_unsynced = False
            self.sync_ceiling = INT64_MAX
        finally:
            self.release()
        try:
            sync_all(older)
            if names:
                sync_directory(self.active.directory)
            if file is not None:
                with nogil:
                    status = file.datasync()
                if status < 0:
                    file.raise_errno()
        except BaseException as e:
            self.fail_sync(e)
            self.check_there()
            raise
        self.syncing_from = INT64_MAX
        if self.traffic is not None:
            took(&self.traffic.syncs, began)
        return min(reached, self.sync_ceiling)  # what was appended since a truncation is not in this sync

    cdef int sync_closed(self) except -1:
        """Brings what was appended before the log was closed to the disk, if closing has not. OSError."""
        self.acquire()
        try:
            if self.refusal is not None:
                raise LogFailedError(f"the log was closed, and what was appended may be lost: {self.refusal}")
            self.owe_sync([*self.active.files()], True)
            self.sync_owed()
        finally:
            self.release()
        return 0
