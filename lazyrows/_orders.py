"""Which rows of a source, in what order: a range or an array of positions.

Pure plans: nothing here reads data or knows JAX. Slices of an order are O(1); index arrays and masks
are checked here, once, so that everything below may assume that positions are in bounds.
"""

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

    def __getitem__(self, index: int) -> int:
        """The source position of one row; negative indices count from the end, others raise IndexError."""
        try:
            return int(self.positions[index])
        except IndexError:
            raise IndexError(f"row index {index} is out of range for {len(self)} rows") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> "range | bytes":
        return self.positions if isinstance(self.positions, range) else self.positions.tobytes()

    def slice(self, index: slice) -> "Order":
        """A slice of the order, as a list has it: clamped, O(1); a step of 0 raises ValueError."""
        return Order(self.positions[index])

    def select(self, index: "Sequence[Any] | NDArray[Any]") -> "Order":
        """The rows named by a list or 1-D array of integers, or where a mask of exactly this length is True."""
        chosen = _mask(index, len(self)) if _is_mask(index) else _integers(index, len(self))
        return self._take(chosen)

    def _take(self, chosen: "NDArray[np.int64]") -> "Order":
        span = self.positions
        return Order(span.start + span.step * chosen if isinstance(span, range) else span[chosen])

    def chunks(self, size: int) -> "Iterator[Order]":
        """The order cut into consecutive runs of `size` rows, the last one possibly shorter."""
        return (self.slice(slice(start, start + size)) for start in range(0, len(self), size))

    def indices(self, size: int, bound: int) -> "NDArray[np.int32] | NDArray[np.int64]":
        """The positions as an array of `size` entries, the last one repeated; int32 where that can count to `bound`."""
        dtype = np.int32 if bound <= _INT32_MAX else np.int64
        span = self.positions
        given = np.arange(span.start, span.stop, span.step, dtype) if isinstance(span, range) else span.astype(dtype)
        if len(given) == size:
            return given
        padded = np.empty(size, dtype)  # np.pad takes 20 µs, as long as the gather
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
        raise IndexError(f"a boolean mask of shape {mask.shape} cannot index {length} rows: its shape must be ({length},)")
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
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise TypeError(
            f"rows are indexed by 1-D arrays of integers or booleans, not by {index.dtype} of shape {index.shape}"
        )
    return index


def _integer_list(index: Sequence[Any]) -> NDArray[Any]:
    for entry in index:
        if isinstance(entry, bool | np.bool_) or not hasattr(entry, "__index__"):
            raise TypeError(f"rows are indexed by lists of integers, or of booleans alone; this one holds {entry!r}")
    # Python integers, so that one beyond int64 is named in the error rather than overflowing
    return np.array([operator.index(entry) for entry in index], dtype=object)
