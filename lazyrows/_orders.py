"""Which rows of a source, in what order: a range or an array of positions.

Pure plans: nothing here reads data or knows JAX. Slices of an order are O(1); every kind of index is checked here,
once, so that everything below may assume that positions are in bounds.
"""

import builtins
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Positions of rows in their source, all non-negative and in bounds: a range or a 1-D int64 array."""

    positions: "range | NDArray[np.int64]"

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> int:
        """The source position of one row; a negative index counts from the end."""
        place = index if type(index) is int else _integer(index)
        try:
            return int(self.positions[place])
        except IndexError:
            raise IndexError(f"row index {place} is out of range for {len(self)} rows") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> "range | bytes":
        return self.positions if isinstance(self.positions, range) else self.positions.tobytes()

    def slice(self, index: slice) -> "Order":
        """A slice of the order, as a list has it: clamped, O(1); a step of 0 raises ValueError."""
        positions = self.positions[index]
        if isinstance(positions, range) and len(positions) < 2:  # whose step means nothing, and may not fit 64 bits
            positions = range(positions.start, positions.start + len(positions))
        return Order(positions)

    def select(self, index: "Sequence[Any] | NDArray[Any]") -> "Order":
        """The rows named by a list or 1-D array of integers, or where a mask of exactly this length is True."""
        chosen = _mask(index, len(self)) if _is_mask(index) else _integers(index, len(self))
        return self._take(chosen)

    def _take(self, chosen: "NDArray[np.int64]") -> "Order":
        span = self.positions
        return Order(span.start + span.step * chosen if isinstance(span, range) else span[chosen])

    def chunks(self, size: int, align: int = 1) -> "Iterator[Order]":
        """The order cut into runs of up to `size` rows, each ending where rows stored together, `align` of them, do.

        So that what is stored together is read once. A run in which no such end falls has `size` rows.
        """
        start = 0
        while start < len(self):
            stop = start + size if align == 1 else self._last_end(start, start + size, align)
            yield self.slice(slice(start, stop))
            start = stop

    def _last_end(self, start: int, stop: int, align: int) -> int:
        if stop >= len(self):
            return stop
        stored = self.slice(slice(start, stop + 1)).as_array() // align
        ends = np.flatnonzero(stored[1:] != stored[:-1])
        return start + int(ends[-1]) + 1 if ends.size else stop

    def reads(self, size: int, align: int, gap: int) -> "Iterator[tuple[slice, Any, Any]]":
        """What to read for these rows: windows of up to about `size` source rows, none of them met twice.

        For each the window of the source, in ascending order; the places its rows have in this order; and which rows of
        the window they are. More than `gap` rows that nobody wants, and whatever is stored with them, are left out.
        """
        start = self.window()
        if start is not None:
            yield slice(start, start + len(self)), slice(0, len(self)), slice(None)
            return
        if not len(self):
            return
        positions = self.as_array()
        places = np.argsort(positions, kind="stable")
        ascending = positions[places]
        stored = ascending // align
        numbers = (stored - stored[0]) // -(-size // align)
        apart = (np.diff(ascending) > gap) & (np.diff(stored) > 0)
        for part in np.split(places, np.flatnonzero(apart | (np.diff(numbers) > 0)) + 1):
            first, last = int(positions[part[0]]), int(positions[part[-1]])
            yield slice(first, last + 1), part, positions[part] - first

    def as_array(self, dtype: Any = np.int64) -> NDArray[Any]:
        """The positions as an array."""
        span = self.positions
        if isinstance(span, range):
            return np.arange(span.start, span.stop, span.step, dtype=dtype)
        return span.astype(dtype, copy=False)

    def indices(self, size: int, bound: int) -> NDArray[Any]:
        """The positions as an array of `size` entries, the last one repeated; int32 where that can count to `bound`."""
        given = self.as_array(np.int32 if bound <= _INT32_MAX else np.int64)
        if len(given) == size:
            return given
        padded = np.empty(size, given.dtype)  # np.pad takes 20 µs, as long as the gather
        padded[: len(given)], padded[len(given) :] = given, given[-1]
        return padded

    def then(self, order: "Order") -> "Order":
        """The rows of this order at the positions of another."""
        index = order.as_index()
        return self.slice(index) if isinstance(index, slice) else self._take(index)

    def as_index(self) -> "slice | NDArray[np.int64]":
        """What to index an array with for its rows in this order: a slice where one will do."""
        span = self.positions
        if not isinstance(span, range):
            return span
        return slice(span.start, span.stop if span.stop >= 0 else None, span.step) if span else slice(0, 0)

    def span(self) -> "tuple[int, int]":
        """The first and the last source position of these rows, of which there is one at least."""
        span = self.positions
        ends = (span[0], span[-1]) if isinstance(span, range) else (int(span.min()), int(span.max()))
        return min(ends), max(ends)

    def window(self) -> "int | None":
        """The first position, where the rows are neighbours in ascending order."""
        span = self.positions
        return span.start if isinstance(span, range) and span.step == 1 and span else None


def _is_mask(index: "Sequence[Any] | NDArray[Any]") -> bool:
    if isinstance(index, np.ndarray):
        return index.dtype == np.bool_
    return len(index) > 0 and all(isinstance(entry, bool | np.bool_) for entry in index)


def _mask(index: "Sequence[Any] | NDArray[Any]", length: int) -> NDArray[np.int64]:
    mask = np.asarray(index)
    if mask.shape != (length,):
        raise IndexError(
            f"a boolean mask of shape {mask.shape} cannot index {length} rows: its shape must be ({length},)"
        )
    return np.flatnonzero(mask).astype(np.int64)


def _integers(index: "Sequence[Any] | NDArray[Any]", length: int) -> NDArray[np.int64]:
    values = _integer_array(index) if isinstance(index, np.ndarray) else _integer_list(index)
    outside = np.flatnonzero((values < -length) | (values >= length))
    if outside.size:
        place = int(outside[0])
        raise IndexError(f"row index {values[place]} at position {place} is out of range for {length} rows")
    chosen = values.astype(np.int64)
    return np.where(chosen < 0, chosen + length, chosen)


def _integer_array(index: NDArray[Any]) -> NDArray[Any]:
    if index.ndim != 1 or index.dtype.kind not in "iu" or isinstance(index, np.ma.MaskedArray):
        given = f"{'masked ' if isinstance(index, np.ma.MaskedArray) else ''}{index.dtype} of shape {index.shape}"
        raise TypeError(f"rows are indexed by 1-D arrays of integers or booleans, not by {given}")
    return index


def _integer_list(index: Sequence[Any]) -> NDArray[Any]:
    for entry in index:
        if isinstance(entry, bool | np.bool_) or not hasattr(entry, "__index__"):
            raise TypeError(f"rows are indexed by lists of integers, or of booleans alone; this one holds {entry!r}")
    # Python integers, so that one beyond int64 is named in the error rather than overflowing
    return np.array([operator.index(entry) for entry in index], dtype=object)


def _integer(index: Any) -> int:
    try:
        if not isinstance(index, bool | np.bool_):
            return operator.index(index)
    except TypeError:
        pass
    raise TypeError(f"rows cannot be indexed by {_kind(index)}: {_remedy(index)}")


def _kind(index: Any) -> str:
    return "..." if index is ... else f"{index!r} ({type(index).__name__})"


def _remedy(index: Any) -> str:
    match index:
        case tuple():
            return "index the row that rows[i] gives, or rows.stack()"
        case None:
            return "use rows.stack()[None]"
        case builtins.Ellipsis:
            return "use rows[:]"
        case bool() | np.bool_():
            return "use int(...) for a position, or a mask of length len(rows) to choose rows"
        case float() | np.floating():
            return "use int(...)"
        case _:
            return "use an integer, a slice, a list or 1-D array of integers, or a boolean mask"
