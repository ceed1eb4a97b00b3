"""Bounded look-ahead, the iterator it feeds, and a memory of the last chunk, over any fetch callable. Knows no JAX.

Nothing is fetched before it is asked for, and nothing is held but the chunks not yet delivered.
"""

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, cast

Piece = TypeVar("Piece")
Chunk = TypeVar("Chunk")
Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


def prefetch(plan: Iterable[Piece], fetch: Callable[[Piece], Chunk], depth: int) -> Iterator[Chunk]:
    """Yield `fetch(piece)` for each piece in turn, having called it for up to `depth` pieces beyond.

    The first chunk is delivered before any look-ahead begins: whoever wants one row pays for one row.
    An exception raised while looking ahead is kept, and raised when its own turn comes.
    """
    pieces = iter(plan)
    for piece in islice(pieces, 1):
        yield fetch(piece)
    ahead: deque[Callable[[], Chunk]] = deque()
    for piece in pieces:
        ahead.append(_attempt(fetch, piece))
        if len(ahead) > depth:
            yield ahead.popleft()()
    while ahead:
        yield ahead.popleft()()


def _attempt(fetch: Callable[[Piece], Chunk], piece: Piece) -> Callable[[], Chunk]:
    try:
        chunk = fetch(piece)
    except Exception as error:
        return partial(_raise, error)
    return lambda: chunk


def _raise(error: Exception) -> NoReturn:
    raise error


class Stepped(Protocol[Row_co]):
    """Rows fetched together and handed out `step` at a time: `rows(start)` from one multiple of it up to the next."""

    @property
    def step(self) -> int: ...

    def rows(self, start: int) -> Sequence[Row_co]: ...


# the chunk asked for last; once asked for again, its context, its block, and by place the rows not yet handed out
_Held: TypeAlias = "tuple[int, Hashable, Stepped[Row] | None, dict[int, Row]]"


class Recent(Generic[Row]):
    """Single rows by position, from the last chunk where a second row of it is wanted, else one by one.

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
    ) -> None:
        self._row, self._fetch, self._size = row, fetch, size
        self._context, self._keep = context, keep
        self._held: _Held[Row] = -1, None, None, {}

    def row(self, position: int) -> Row:
        number = position // self._size
        held, context, block, ready = self._held
        if held != number:
            self._held = number, None, None, {}
            return self._row(position)
        now = self._context()
        if block is None or context != now:
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

    _progress: "Progress"

    @classmethod
    def over(cls, groups: "Callable[[Progress], Iterator[Iterator[Row]]]", length: int) -> "RowIterator[Row]":
        progress = Progress(length, iter(()))
        made = cast("RowIterator[Row]", cls.from_iterable(groups(progress)))
        made._progress = progress
        return made

    def __length_hint__(self) -> int:
        return self._progress.pending + operator.length_hint(self._progress.group)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot copy or pickle a row iterator: keep the RowView, and iterate over it again")


@dataclass(slots=True)
class Progress:
    """How many rows are still to be made, and the group of made ones being handed out."""

    pending: int
    group: Iterator[Any]
