"""Bounded look-ahead, and a memory of the last chunk, over any fetch callable. Knows no JAX.

Nothing is fetched before it is asked for, and nothing is held but the chunks not yet delivered.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Generic, NoReturn, Protocol, TypeVar

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


@dataclass(slots=True)
class _Held(Generic[Row]):
    """The chunk asked for last, by number: fetched when asked for again, its rows kept until handed out."""

    number: int
    context: Hashable
    block: "Stepped[Row] | None" = None
    ready: "dict[int, tuple[Row]]" = field(default_factory=dict[int, tuple[Row]])


class Recent(Generic[Row]):
    """Single rows by position, from the last chunk where a second row of it is wanted, else one by one.

    A row of the chunk is handed out once and then made anew, so a caller may delete or donate what it got.
    `context()` is what else a row depends on: where it has changed, the chunk is forgotten. `keep` refuses
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
        self._held = _Held[Row](-1, None)

    def row(self, position: int) -> Row:
        number, place = divmod(position, self._size)
        held, context = self._held, self._context()
        if held.number != number or held.context != context:
            self._held = _Held[Row](number, context)
            return self._row(position)
        ready = held.ready.pop(place, None)
        return self._explode(held, place) if ready is None else ready[0]

    def _explode(self, held: _Held[Row], place: int) -> Row:
        block = held.block or self._fetch(held.number)
        start = place - place % block.step
        rows = block.rows(start)
        row = rows[place - start]
        if self._keep(row):
            held.block = block
            held.ready.update({start + k: (other,) for k, other in enumerate(rows) if start + k != place})
        return row
