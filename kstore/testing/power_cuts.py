"""The directories that a disk may have after a power cut, at any moment of a trace of calls.

Content is durable when a sync of it has returned. A model defines which later changes a disk may have:

strict   The guarantees of POSIX. A sync of a file makes its content and length durable, but not its name;
         names become durable by a sync of their directory. Any subset of later writes, lengths and names may
         be there. A write may be torn at any multiple of 512 bytes or 4 KiB, and its length may be there
         with zeros in place of its bytes.
ordered  The default of ext4 (data=ordered, delayed allocation). Names, truncations and allocations
         reach the disk in their order, of all files; a sync of a file brings everything of that kind up to
         its own last one. A file grows only by bytes that are there; bytes written over others come at any
         time.
pages    As strict, but every page of 512 bytes or 4 KiB of a write is there or not by itself.

In all of them a rename within a directory is there or not, as one; between directories the new name and the
loss of the old one are two changes.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from kstore.arguments import choice, instance, integer
from kstore.testing.image import Image
from kstore.testing.recorder import Call, Trace, apply

MODELS = ("strict", "ordered", "pages")
PAGES = (512, 4096)


ROOT = -1  # the number of the recorded directory. Other directories have lower numbers, files have 1 or more


class Change(NamedTuple):
    """A call that is not durable yet. `at`: its index in the trace. It has a directory if it changes names,
    else a file."""

    at: int
    call: Call
    directory: int | None = None
    names: tuple[tuple[str, int | None], ...] = ()  # name -> number of the file or directory, or None


class State(NamedTuple):
    """A directory after a power cut.

    `at`: the number of calls that had been made. `value`: that of the last mark before. `model`, `text`: the
    changes that reached the disk, in words. `image`: the files.
    """

    at: int
    value: Any
    model: str
    text: str
    image: Image


@dataclass
class _Choice:
    """The changes that reached the disk, by their indexes; for a write perhaps only the pieces [(from,
    to)]."""

    text: str
    taken: set[int]
    pieces: dict[int, list[tuple[int, int]]]
    zeros: set[int]  # writes of which only the length reached the disk


class Disk:
    """A trace, replayed up to some call: the durable content, and the changes that are not durable yet."""

    def __init__(self, trace: Trace) -> None:
        self.contents = {number: trace.base.files[path] for path, number in trace.numbers.items()}  # durable
        self.names: dict[int, dict[str, int]] = {ROOT: {}}  # durable, by directory
        self._directories = {"": ROOT}  # by path, as the program sees them
        for path in sorted(trace.base.directories):
            self._place(path, self._new_directory(path))
        for path, number in trace.numbers.items():
            self._place(path, number)
        self.pending: list[Change] = []
        self.committed = -1  # ordered: changes of names and lengths up to here are durable
        self._begun: dict[int, list[int]] = {}
        self._last: dict[int, int] = {}  # the last change of names and lengths, by file and directory

    def _new_directory(self, path: str) -> int:
        number = self._directories[path] = -len(self.names) - 1
        self.names[number] = {}
        return number

    def _place(self, path: str, number: int) -> None:
        parent, name = _split(path)
        self.names[self._directories[parent]][name] = number

    def take(self, at: int, call: Call) -> None:
        """Replay one call."""
        name = call.name
        if name == "create":
            self.contents[call.file] = b""
            self._rename(at, call, {call.path: call.file})
            self._last[call.file] = at
        elif name == "rename":
            number = call.file or self._directories[call.path]
            self._rename(at, call, {call.path: None, call.target: number})
            if number < 0:
                moved = {p: n for p, n in self._directories.items() if f"{p}/".startswith(f"{call.path}/")}
                for path, inside in moved.items():
                    del self._directories[path]
                    self._directories[call.target + path[len(call.path) :]] = inside
        elif name == "unlink":
            self._rename(at, call, {call.path: None})
            self._directories.pop(call.path, None)
        elif name == "make_directory":
            self._rename(at, call, {call.path: self._new_directory(call.path)})
        elif name in ("write", "truncate", "allocate"):
            self.pending.append(Change(at, call))
            if name != "write":
                self._last[call.file] = at
        elif name in ("syncs", "syncs_directory"):
            self._begun.setdefault(self._number_of(call), []).append(at)
        elif name == "sync":
            self._sync(call.file, None, self._begun[call.file].pop(0))
        elif name == "sync_directory":
            directory = self._number_of(call)
            self._sync(0, directory, self._begun[directory].pop(0))

    def _number_of(self, call: Call) -> int:
        return call.file or self._directories.get(call.path, 0)  # 0: nothing was recorded in that directory

    def _rename(self, at: int, call: Call, names: dict[str, int | None]) -> None:
        by_directory: dict[int, list[tuple[str, int | None]]] = {}
        for path, number in names.items():
            parent, name = _split(path)
            by_directory.setdefault(self._directories[parent], []).append((name, number))
        for directory, changed in by_directory.items():
            self.pending.append(Change(at, call, directory, tuple(changed)))
            self._last[directory] = at

    def _sync(self, file: int, directory: int | None, begun: int) -> None:
        left = []
        for change in self.pending:
            if change.at > begun or (
                change.call.file != file if directory is None else change.directory != directory
            ):
                left.append(change)
            elif directory is not None:
                _set(self.names[directory], change.names)
            elif change.directory is not None:
                left.append(change)
            else:
                content = bytearray(self.contents[file])
                _apply(content, change.call)
                self.contents[file] = bytes(content)
        self.pending = left
        last = self._last.get(file if directory is None else directory, -1)
        self.committed = max(self.committed, min(last, begun))

    def whole(self) -> Image:
        """The directory if all changes have reached the disk."""
        return self.image(_Choice("everything", {change.at for change in self.pending}, {}, set()))

    def image(self, choice: _Choice) -> Image:
        """The directory if these changes have reached the disk."""
        changed: dict[int, bytearray] = {}
        names: dict[int, dict[str, int]] = {}
        for change in self.pending:
            if change.at not in choice.taken:
                continue
            if change.directory is not None:
                if change.directory not in names:
                    names[change.directory] = dict(self.names[change.directory])
                _set(names[change.directory], change.names)
                continue
            call = change.call
            content = changed.get(call.file)
            if content is None:
                content = changed[call.file] = bytearray(self.contents[call.file])
            if change.at in choice.zeros:
                grown = max(call.position + len(call.data) - len(content), 0)
                content.extend(bytes(grown))
            elif change.at in choice.pieces:
                for first, end in choice.pieces[change.at]:
                    piece = call.data[first - call.position : end - call.position]
                    apply(content, "write", first, piece, 0)
            else:
                _apply(content, call)
        image = Image()
        todo = [("", ROOT)]
        while todo:
            above, directory = todo.pop()
            for name, number in names.get(directory, self.names[directory]).items():
                path = above + name
                if number < 0:
                    image.directories.add(path)
                    todo.append((f"{path}/", number))
                else:
                    image.files[path] = bytes(changed.get(number, self.contents[number]))
        return image


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


def _set(names: dict[str, int], changed: Sequence[tuple[str, int | None]]) -> None:
    for name, number in changed:
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def _apply(content: bytearray, call: Call) -> None:
    apply(content, call.name, call.position, call.data, call.size)


# ---- choices of changes ------------------------------------------------------------------------------------


def _pieces(call: Call, page: int) -> list[tuple[int, int]]:
    """The pages of a write."""
    end = call.position + len(call.data)
    edges = [call.position, *range((call.position // page + 1) * page, end, page), end]
    return list(pairwise(edges))


def _strict(disk: Disk, rng: random.Random, randoms: int) -> Iterator[_Choice]:
    places = sorted({change.at for change in disk.pending})
    every = set(places)
    writes = [change for change in disk.pending if change.call.name == "write" and change.call.data]
    named = {change.at for change in disk.pending if change.directory is not None}
    yield _Choice("nothing", set(), {}, set())
    yield _Choice("everything", every, {}, set())
    if named and named != every:
        yield _Choice("all names, no content", named, {}, set())
        yield _Choice("all content, no names", every - named, {}, set())
    if writes:
        yield _Choice("all lengths, zeros for content", every, {}, {change.at for change in writes})
    for at in places:
        yield _Choice(f"call {at} alone", {at}, {}, set())
        yield _Choice(f"all but call {at}", every - {at}, {}, set())
        yield _Choice(f"up to call {at}", {p for p in places if p <= at}, {}, set())
    for change in writes:
        at, call = change.at, change.call
        yield _Choice(f"everything, zeros for call {at}", every, {}, {at})
        for page in PAGES:
            for first, _ in _pieces(call, page)[1:]:
                torn = {at: [(call.position, first)]}
                yield _Choice(f"everything, call {at} torn at {first}", every, torn, set())
    for _ in range(randoms if len(places) > 1 else 0):
        share = rng.choice((0.2, 0.5, 0.8))
        taken = {at for at in places if rng.random() < share}
        zeros = {change.at for change in writes if change.at in taken and rng.random() < 0.1}
        torn = {}
        for change in writes:
            if change.at in taken and rng.random() < 0.1:
                cut = rng.randrange(len(change.call.data)) // 512 * 512
                torn[change.at] = [(change.call.position, change.call.position + cut)]
        yield _Choice(
            f"calls {_short(taken)}, torn {_short(set(torn))}, zeros {_short(zeros)}", taken, torn, zeros
        )


def _pages(disk: Disk, rng: random.Random, randoms: int) -> Iterator[_Choice]:
    places = sorted({change.at for change in disk.pending})
    writes = [change for change in disk.pending if change.call.name == "write" and change.call.data]
    for _ in range(randoms if writes else 0):
        page, share = rng.choice(PAGES), rng.choice((0.2, 0.5, 0.8))
        others = set(places) - {change.at for change in writes}
        if rng.random() < 0.5:
            others = {at for at in others if rng.random() < share}
        pieces = {}
        for change in writes:
            pieces[change.at] = [piece for piece in _pieces(change.call, page) if rng.random() < share]
        taken = others | {at for at, there in pieces.items() if there}
        written = {at: there for at, there in pieces.items() if there}
        text = f"pages of {page}: {written}, and {_short(others)}"
        yield _Choice(text, taken, pieces, set())


def _ordered(disk: Disk, rng: random.Random, randoms: int) -> Iterator[_Choice]:
    steps = [c for c in disk.pending if c.call.name != "write"]
    writes = [c for c in disk.pending if c.call.name == "write" and c.call.data]
    bounds = sorted({c.at for c in steps if c.at > disk.committed} | {disk.committed})
    for bound in bounds:
        named = {c.at for c in steps if c.at <= bound}
        cut_off = {c.call.file: c.at for c in reversed(steps) if c.call.name == "truncate" and c.at > bound}
        possible = [c for c in writes if c.at < cut_off.get(c.call.file, c.at + 1)]
        yield _Choice(f"names and lengths up to call {bound}, no content", named, {}, set())
        text = f"names and lengths up to call {bound}, all content"
        yield _Choice(text, named | {c.at for c in possible}, {}, set())
        for _ in range(randoms if possible else 0):
            yield _grown(disk, rng, bound, named, possible)


def _grown(disk: Disk, rng: random.Random, bound: int, named: set[int], possible: list[Change]) -> _Choice:
    """A choice in which each file has grown to its first missing byte, and has some of its overwritten
    pages."""
    page, share = rng.choice(PAGES), rng.choice((0.2, 0.5, 0.8))
    lengths: dict[int, int] = {}
    ends: dict[int, int] = {}  # the size at which a file stops growing
    taken, pieces = set(named), {}
    for change in disk.pending:
        call = change.call
        if change.directory is not None or (change.call.name != "write" and change.at not in named):
            continue
        length = lengths.setdefault(call.file, len(disk.contents[call.file]))
        if call.name == "truncate":
            lengths[call.file] = call.position
            ends.pop(call.file, None)
        elif call.name == "allocate":
            lengths[call.file] = max(length, call.position + call.size)
        elif change in possible:
            there = []
            for first, end in _pieces(call, page):
                if end <= length:
                    if rng.random() < share:
                        there.append((first, end))
                elif call.file not in ends and rng.random() < max(share, 0.5) and first <= length:
                    there.append((first, end))
                    length = end
                else:
                    ends[call.file] = length
            lengths[call.file] = length
            if there:
                pieces[change.at] = there
                taken.add(change.at)
    return _Choice(f"names and lengths up to call {bound}, pages of {page}: {pieces}", taken, pieces, set())


def _short(places: set[int]) -> str:
    return ",".join(map(str, sorted(places))) or "none"


_CHOICES = {"strict": _strict, "ordered": _ordered, "pages": _pages}


def crash_states(
    trace: Trace,
    *,
    models: Sequence[str] = MODELS,
    randoms: int = 4,
    most: int | None = None,
    moments: int | None = None,
    seed: object = 0,
) -> Iterator[State]:
    """Yield every state that a power cut may leave, at every moment of a trace.

    models: "strict" (the guarantees of POSIX), "ordered" (the default of ext4), "pages" (any pages of each
    write). See docs/testing.md. randoms: the number of random subsets at a moment, besides the regular ones.
    most: the largest number of states for a model and a moment. moments: the approximate number of moments.
    Both are evenly distributed samples, by `seed`. Equal states with equal values are yielded once.

    ValueError for an unknown model, or for numbers without a state; TypeError for a trace that is not from a
    Recorder.
    """
    instance("trace", trace, Trace)
    if isinstance(models, str):
        raise TypeError(f"models must be a list of names, not {models!r}")
    if not models:
        raise ValueError("models is empty: there would be no states")
    integer("randoms", randoms, 0)
    for name, number in (("most", most), ("moments", moments)):
        if number is not None:
            integer(name, number, 1)
    for model in models:
        choice("model", model, MODELS)
    step = 1 if moments is None else max(len(trace.calls) / moments, 1)
    due = random.Random(f"{seed}").random() * step
    disk = Disk(trace)
    value: Any = None
    known: set[tuple[bytes, int]] = set()
    for at, call in enumerate(trace.calls):
        disk.take(at, call)
        if call.name == "mark":
            value = call.value
        elif call.name in ("syncs", "syncs_directory"):
            continue
        if at < due:
            continue
        due += step
        for model in models:
            rng = random.Random(f"{seed} {at} {model}")
            choices = _CHOICES[model](disk, rng, randoms)
            for chosen in choices if most is None else _sample(list(choices), most, rng):
                image = disk.image(chosen)
                key = (image.digest(), id(value))
                if key not in known:
                    known.add(key)
                    yield State(at, value, model, chosen.text, image)


def _sample(choices: list[_Choice], most: int, rng: random.Random) -> list[_Choice]:
    return choices if len(choices) <= most else rng.sample(choices, most)
