"""Bounded look-ahead, the iterator it feeds, and a memory of the last chunk, over any fetch callable. Knows no JAX.

Nothing is fetched before the first row is asked for, nor further ahead than was allowed.
"""

import operator
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, cast

Piece = TypeVar("Piece")
Chunk = TypeVar("Chunk")
Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


def prefetch(
    plan: Iterable[Piece],
    read: Callable[[Piece], Any],
    load: Callable[[Any], Chunk],
    depth: int,
    threaded: bool = False,
) -> Iterator[Chunk]:
    """Yield `load(read(piece))` for each piece in turn, having begun up to `depth` pieces beyond.

    `load` is called here; `read` too, or, where `threaded`, in a thread of this iteration's own: what it has read by
    the time of a turn is loaded then. An exception met ahead of its turn is raised when that comes.
    """
    todo: SimpleQueue[Any] = SimpleQueue()
    read_ahead: SimpleQueue[_Outcome] = SimpleQueue()
    loaded: deque[_Outcome] = deque()
    threaded = threaded and depth > 0 and _starts(_serve, read, todo, read_ahead)
    begun, process = 0, os.getpid()

    def turn() -> Chunk:
        if threaded and os.getpid() != process:
            raise RuntimeError("a fork has left this iterator's reader behind: iterate over the view again")
        while len(loaded) < begun and not (loaded and read_ahead.empty()):
            loaded.append(_outcome(lambda: load(_value(read_ahead.get()))))
        return _value(loaded.popleft())

    try:
        for piece in plan:
            if threaded:
                todo.put(piece)
            else:
                read_ahead.put(_outcome(partial(read, piece)))
            begun += 1
            if begun > depth:
                yield turn()
                begun -= 1
        while begun:
            yield turn()
            begun -= 1
    finally:
        loaded.clear()  # or the traceback of an exception would keep them
        with suppress(Empty):
            while True:
                todo.get_nowait()
        todo.put(None)


_Outcome: TypeAlias = "tuple[Any, BaseException | None]"


def _outcome(call: Callable[[], Any], kept: type[BaseException] = Exception) -> _Outcome:
    try:
        return call(), None
    except kept as error:
        return None, error


def _value(outcome: _Outcome) -> Any:
    value, error = outcome
    try:
        if error is not None:
            raise error
        return value
    finally:
        del outcome, error  # or an exception would refer to itself, and what it holds live until the collector comes


def _starts(target: Callable[..., None], *args: Any) -> bool:
    try:
        Thread(target=target, args=args, name="lazyrows reader", daemon=True).start()
    except RuntimeError:  # no more threads, or the interpreter is shutting down
        return False
    return True


def _serve(read: Callable[[Any], Any], todo: "SimpleQueue[Any]", done: "SimpleQueue[_Outcome]") -> None:
    """Read until told to stop; knows nothing of the iterator, which therefore may go away meanwhile."""
    while (piece := todo.get()) is not None:
        done.put(_outcome(partial(read, piece), kept=BaseException))  # where nobody else would hear of it


class Stepped(Protocol[Row_co]):
    """Rows fetched together and handed out `step` at a time: `rows(start)` from one multiple of it up to the next."""

    @property
    def step(self) -> int: ...

    def rows(self, start: int) -> Sequence[Row_co]: ...


# the chunk asked for last; once asked for again, its context, its block, and by place the rows not yet handed out
_Held: TypeAlias = "tuple[int, Hashable, Stepped[Row] | None, dict[int, Row]]"


class Recent(Generic[Row]):
    """Single rows by position, from the last chunk where a second row of it is wanted, or `eager`ly; else one by one.

    A row of the chunk is handed out once and then made anew, so a caller may delete or donate what it got.
    `context()` is what else a row depends on: where it has changed, the chunk is fetched again. `keep` refuses
    rows that must not outlive the call (tracers). Safe between threads: a chunk is replaced whole.
    """

    def __init__(
        self,
        row: Callable[[int], Row],
        fetch: Callable[[int], Stepped[Row]],
        size: int,
        context: Callable[[], Hashable],
        passing: Callable[[Row], bool],
        eager: bool = False,
    ) -> None:
        self._row, self._fetch, self._size = row, fetch, size
        self._context, self._passing, self._eager = context, passing, eager
        self._held: _Held[Row] = -1, None, None, {}

    def row(self, position: int) -> Row:
        number = position // self._size
        held, context, block, ready = self._held
        if held != number and not self._eager:
            self._held = number, None, None, {}
            return self._row(position)
        now = self._context()
        if block is None or (held, context) != (number, now):
            block, ready = self._fetch(number), {}
        place = position - number * self._size
        row = ready.pop(place, None)
        return self._explode(block, place, (number, now)) if row is None else row

    def _explode(self, block: Stepped[Row], place: int, key: "tuple[int, Hashable]") -> Row:
        start = place - place % block.step
        rows = block.rows(start)
        row = rows[place - start]
        if not self._passing(row):
            others = {start + k: other for k, other in enumerate(rows) if start + k != place}
            self._held = *key, block, others
        return row


class RowIterator(chain[Row]):
    """An independent iterator over the rows of a view; it has a `__length_hint__`, and stays exhausted.

    It is `itertools.chain` over the groups of rows that are made together, so that a row costs no Python call.
    """

    _groups: "_Groups[Row]"

    @classmethod
    def over(cls, groups: "Iterator[Sequence[Row]]", length: int) -> "RowIterator[Row]":
        counted = _Groups(groups, length)
        made = cast("RowIterator[Row]", cls.from_iterable(counted))
        made._groups = counted
        return made

    def __length_hint__(self) -> int:
        return self._groups.pending + operator.length_hint(self._groups.current)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot copy or pickle a row iterator: keep the RowView, and iterate over it again")


class _Groups(Generic[Row]):
    """The groups of rows of an iterator, and how many rows are still to be made.

    No generator, because `chain` lets go of one that is entered twice (by two threads, or again from a callback of
    JAX's) while it still runs, and the interpreter crashes; whereas this is kept alive by its method's frame.
    """

    def __init__(self, groups: "Iterator[Sequence[Row]]", length: int) -> None:
        self._groups, self.pending = groups, length
        self.current: Iterator[Row] = iter(())

    def __iter__(self) -> "_Groups[Row]":
        return self

    def __next__(self) -> Iterator[Row]:
        try:
            rows = next(self._groups)
        except BaseException:  # StopIteration too
            self.pending = 0
            raise
        self.pending -= len(rows)
        self.current = iter(rows)
        return self.current
