"""A source: the leaves of a pytree, whose rows are pytrees of the same structure; and a block of such rows."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lazyrows import _kernels
from lazyrows._orders import Order
from lazyrows._prefetch import prefetch
from lazyrows._sources._protocols import Leaf
from lazyrows._sources._traced import locate

Chunk = TypeVar("Chunk")


class Reading(NamedTuple):
    """Rows that have been read, and are still to be put on a device or gathered there."""

    length: int
    size: int
    leaves: "list[Any]"


class Block:
    """`len` rows made together, in arrays of them; padding behind them is never shown."""

    def __init__(self, treedef: Any, arrays: "list[jax.Array]", length: int, step: int) -> None:
        # of a tracer, or of an array that a trace has met; one split makes all rows
        traced = any(isinstance(array, Tracer) for array in arrays)
        self._treedef, self._length = treedef, length
        self._explode = [_unstack(array, length) if traced else _kernels.exploder(array, step) for array in arrays]
        self.step = length if traced else step
        """How many rows `rows` gives at a time."""

    def groups(self) -> Iterator[list[Any]]:
        """All rows, those that are made at a time together."""
        full = range(0, self._length - self.step + 1, self.step)
        yield from map(self._explode[0] if self._treedef is None else self.rows, full)
        if self._length % self.step:
            yield self.rows(len(full) * self.step)

    def rows(self, start: int) -> list[Any]:
        """The rows from `start`, a multiple of `step`, up to the next multiple or the end."""
        return _rows(self._treedef, [explode(start)[: self._length - start] for explode in self._explode])


def _rows(treedef: Any, leaves: "list[list[jax.Array]]") -> list[Any]:
    return leaves[0] if treedef is None else [treedef.unflatten(row) for row in zip(*leaves)]


def _unstack(array: jax.Array, length: int) -> Callable[[int], list[jax.Array]]:
    return lambda start: list(jnp.unstack(array))[:length]


class Source:
    """Leaves of one length; where the pytree is a single leaf, `treedef` is None.

    Each leaf keeps its own programs, so that a row's leaves are as its leaf alone would give them: on their
    own devices, committed or not.
    """

    def __init__(self, treedef: Any, leaves: "Sequence[Leaf]") -> None:
        self._treedef, self.leaves, self._length = treedef, leaves, len(leaves[0])
        self.row: Callable[[int | jax.Array], Any] = leaves[0].row if treedef is None else _tree_row(treedef, leaves)
        """One row; a traced position is clamped."""
        self.align = leaves[0].align if treedef is None else _stored_together(leaves)
        """How many rows are stored together where there is something to read; None where there is not."""
        self.traced = leaves[0].traced
        """Whether rows belong to a trace; then those of every leaf do."""
        self.together = self.align is not None and self.align > 1
        """Whether a row costs as much as all that are stored with it."""

    def __len__(self) -> int:
        return self._length

    @property
    def element_spec(self) -> Any:
        """One row, as a pytree of `jax.ShapeDtypeStruct`."""
        return self.unflatten([leaf.element_spec for leaf in self.leaves])

    @property
    def row_bytes(self) -> int:
        """How many bytes a row has, all leaves together."""
        return sum(leaf.row_bytes for leaf in self.leaves)

    def unflatten(self, leaves: "list[Any]") -> Any:
        """The pytree of these leaves."""
        return leaves[0] if self._treedef is None else self._treedef.unflatten(leaves)

    def read(self, order: Order, size: int) -> Reading:
        """Read the rows of `order`, as far as can be done without JAX, in any thread; to be padded to `size`."""
        return Reading(len(order), size, [leaf.read(order, size) for leaf in self.leaves])

    def arrays(self, reading: Reading) -> "list[jax.Array]":
        """The leaves of what was read, rows along the leading axis, padding included."""
        return [leaf.load(data) for leaf, data in zip(self.leaves, reading.leaves)]

    def groups(self, reading: Reading, step: int) -> "Iterable[list[Any]]":
        """The rows read, in the groups of up to `step` that are made together."""
        if step == 1:
            return [[self._lone(reading, place) for place in range(reading.length)]]
        return self._block(reading, step).groups()

    def _lone(self, reading: Reading, place: int) -> Any:
        return self.unflatten([leaf.lone(data, place) for leaf, data in zip(self.leaves, reading.leaves)])

    def numbered(self, size: int, step: int, number: int) -> Block:
        """Block `number` of all rows, cut into blocks of `size`."""
        return self._block(self.read(Order(range(len(self))[number * size : (number + 1) * size]), size), step)

    def _block(self, reading: Reading, step: int) -> Block:
        return Block(self._treedef, self.arrays(reading), reading.length, step)

    def at_once(self) -> "list[Any] | None":
        """All rows, by one program for each leaf and no gather; None where there is more to do."""
        leaves: list[list[jax.Array]] = []
        for leaf in self.leaves:
            if leaf.whole is None:
                return None
            _kernels.check_not_deleted(leaf.whole)
            leaves.append(_kernels.exploder(leaf.whole, self._length)(0))
        return _rows(self._treedef, leaves)

    def stream(self, order: Order, size: int, load: Callable[[Reading], Chunk], depth: int) -> Iterator[Chunk]:
        """Read and load the rows of `order`, `size` at a time and up to `depth` such chunks ahead."""
        plan = order.chunks(size, self.align or 1)
        depth = depth if len(order) > size else 0
        return prefetch(plan, partial(self.read, size=size), load, depth, threaded=bool(self.align))

    def context(self) -> Hashable:
        """What, besides the position, decides a row: rows kept are good while this stays the same; None if none are."""
        contexts = tuple(leaf.context() for leaf in self.leaves)
        return None if None in contexts else contexts


def _stored_together(leaves: "Sequence[Leaf]") -> "int | None":
    """What blocks of rows are aligned to: the most rows that a leaf stores together and that are not too many bytes.

    Those of the leaf with the largest rows count whatever their bytes; it would cost the most to read twice.
    """
    read = [(leaf.row_bytes, leaf.align) for leaf in leaves if leaf.align]
    if not read:
        return None
    together = sum(row_bytes for row_bytes, _ in read)
    _, of_largest = max(read)
    return max(of_largest, *(align for _, align in read if align * together <= _kernels.LONG_READ_BYTES), 1)


def _tree_row(treedef: Any, leaves: "Sequence[Leaf]") -> "Callable[[int | jax.Array], Any]":
    return lambda position: treedef.unflatten([leaf.row(position) for leaf in leaves])


@dataclass(frozen=True, slots=True)
class OrderedLeaf:
    """A leaf of a view inside a tree: the rows of another leaf, in the view's order."""

    leaf: Leaf
    order: Order
    whole = None

    def __len__(self) -> int:
        return len(self.order)

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return self.leaf.element_spec

    @property
    def align(self) -> "int | None":
        return self.leaf.align and 1

    @property
    def traced(self) -> bool:
        return self.leaf.traced

    @property
    def row_bytes(self) -> int:
        return self.leaf.row_bytes

    def read(self, order: Order, size: int) -> Any:
        return self.leaf.read(self.order.then(order), size)

    def load(self, data: Any) -> jax.Array:
        return self.leaf.load(data)

    def lone(self, data: Any, place: int) -> jax.Array:
        return self.leaf.lone(data, place)

    def row(self, position: "int | jax.Array", /) -> jax.Array:
        return self.leaf.row(locate(self.order, position))

    def context(self) -> Hashable:
        return self.leaf.context()
