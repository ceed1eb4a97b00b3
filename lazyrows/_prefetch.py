"""Bounded look-ahead, the iterator it feeds, and a memory of the last chunk, over any fetch callable. Knows no JAX.

Nothing is fetched before it is asked for, and nothing is held but the chunks not yet delivered.
"""

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, cast

Piece = TypeVar("Piece")
Chunk = TypeVar("Chunk")
Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


def prefetch(
    plan: Iterable[Piece],
    fetch: Callable[[Any], Chunk],
    depth: int,
    read: "Callable[[Piece], Any] | None" = None,
) -> Iterator[Chunk]:
    """Yield `fetch(piece)` for each piece in turn, having called it for up to `depth` pieces beyond.

    With `read`, it is `fetch(read(piece))`, where `read` is called in a thread of this iteration's own, `fetch` here.
    An exception raised while looking ahead is kept, and raised when its own turn comes.
    """
    ahead: deque[_Ahead[Chunk]] = deque()
    reader = _Reader(threaded=read is not None and depth > 0)
    try:
        for piece in plan:
            ahead.append(_Ahead(partial(read, piece) if read else lambda piece=piece: piece, fetch))
            reader.submit(ahead[-1])
            if len(ahead) > depth:
                yield _turn(ahead)
        while ahead:
            yield _turn(ahead)
    finally:
        reader.stop(ahead)


def _turn(ahead: "deque[_Ahead[Chunk]]") -> Chunk:
    """The chunk whose turn it is, once those behind it that have been read by now are fetched too."""
    current = ahead.popleft()
    current.wait()
    for chunk in (current, *ahead):
        chunk.fetch_if_read()
    return current.chunk()


class _Ahead(Generic[Chunk]):
    """A chunk ahead of its turn: read in any thread, then fetched in the consumer's; or the exception of either."""

    def __init__(self, read: Callable[[], Any], fetch: Callable[[Any], Chunk]) -> None:
        self._read, self._fetch = read, fetch
        self._reading: Future[Any] = Future()
        self._outcome: Callable[[], Chunk] | None = None

    def read(self, kept: type[BaseException] = Exception) -> None:
        if self._reading.set_running_or_notify_cancel():
            try:
                self._reading.set_result(self._read())
            except kept as error:
                self._reading.set_exception(error)

    def cancel(self) -> None:
        self._reading.cancel()

    def fetch_if_read(self) -> None:
        if self._outcome is None and self._reading.done():
            try:
                chunk = self._fetch(self._reading.result())
                self._outcome = lambda: chunk
            except Exception as error:
                self._outcome = partial(_raise, error)

    def wait(self) -> None:
        self._reading.exception()

    def chunk(self) -> Chunk:
        assert self._outcome, "it has been waited for, and fetched since"
        return self._outcome()


def _raise(error: Exception) -> NoReturn:
    raise error


class _Reader:
    """Reads chunks in the order submitted: in a thread that knows only its queue, or at once where it has none.

    The thread starts with the first chunk and ends when told to stop, or with the read that it is in.
    """

    def __init__(self, threaded: bool) -> None:
        self._threaded = threaded
        self._queue: SimpleQueue[_Ahead[Any] | None] | None = None

    def submit(self, ahead: "_Ahead[Any]") -> None:
        if self._threaded and self._queue is None:
            self._start()
        if self._queue is None:
            ahead.read()
        else:
            self._queue.put(ahead)

    def _start(self) -> None:
        queue: SimpleQueue[_Ahead[Any] | None] = SimpleQueue()
        try:
            Thread(target=_serve, args=(queue,), name="lazyrows reader", daemon=True).start()
            self._queue = queue
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            self._threaded = False

    def stop(self, unread: "Iterable[_Ahead[Any]]") -> None:
        for ahead in unread:
            ahead.cancel()
        if self._queue is not None:
            self._queue.put(None)


def _serve(queue: "SimpleQueue[_Ahead[Any] | None]") -> None:
    while (ahead := queue.get()) is not None:
        ahead.read(kept=BaseException)  # where nobody else would hear of it
        del ahead  # or the chunk would live until the next one comes


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
        keep: Callable[[Row], bool],
        eager: bool = False,
    ) -> None:
        self._row, self._fetch, self._size = row, fetch, size
        self._context, self._keep, self._eager = context, keep, eager
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
        if self._keep(row):
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
        rows = next(self._groups)
        self.pending -= len(rows)
        self.current = iter(rows)
        return self.current
