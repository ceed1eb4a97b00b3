"""What can be viewed, and how each kind makes its rows: arrays on a device, traced, on the host, and trees of them.

A Source says how many rows it has, what one looks like, and makes a block of them or a single one. Everything
is checked in `source_of`, once; a source built by it reads nothing until it is asked for a row.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from numpy.typing import NDArray

from lazyrows import _kernels
from lazyrows._kernels import Chunking
from lazyrows._orders import Order

Placement: TypeAlias = "jax.Device | Sharding | None"


class Block(Protocol):
    """`len` rows made together; padding behind them is never shown."""

    @property
    def step(self) -> int:
        """How many rows `rows` gives at a time."""
        ...

    def __len__(self) -> int: ...

    def rows(self, start: int) -> list[Any]:
        """The rows from `start`, a multiple of `step`, up to the next multiple or the end."""
        ...

    def arrays(self) -> "list[jax.Array]":
        """The block's leaves, rows along the leading axis, padding included."""
        ...


class Source(Protocol):
    """Rows by position. A block or row belongs to the config context it was made in: see `context`."""

    def __len__(self) -> int: ...

    @property
    def element_spec(self) -> Any:
        """One row, as a pytree of `jax.ShapeDtypeStruct`."""
        ...

    def fetch(self, order: Order, chunking: Chunking) -> Block:
        """The rows of `order` as one block, padded to the chunk size."""
        ...

    def row(self, position: "int | jax.Array") -> Any:
        """One row; a traced position is clamped."""
        ...

    def context(self) -> Hashable:
        """What, besides the position, decides a row: a kept block is good only while this stays the same."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceBlock:
    """Rows gathered on a device."""

    array: jax.Array
    length: int
    step: int
    explode: Callable[[int], list[jax.Array]]

    @classmethod
    def of(cls, array: jax.Array, length: int, step: int) -> "DeviceBlock":
        return cls(array, length, step, _kernels.exploder(array, step))

    def __len__(self) -> int:
        return self.length

    def rows(self, start: int) -> list[jax.Array]:
        if start + self.step <= self.length:
            return self.explode(start)
        # as a dynamic slice does, the last explode of a block reaches back so as to have its full count
        first = min(start, self.array.shape[0] - self.step)
        return self.explode(first)[start - first : self.length - first]

    def arrays(self) -> list[jax.Array]:
        return [self.array]


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """A `jax.Array` on one device: rows are gathered there, and nothing waits for its value."""

    array: jax.Array
    placement: Placement
    row: "Callable[[int | jax.Array], jax.Array]"

    @classmethod
    def of(cls, array: jax.Array, placement: Placement) -> "DeviceSource":
        row = _kernels.indexer(array)
        return cls(array, placement, row if placement is None else lambda index: jax.device_put(row(index), placement))

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        sharding = _sharding(self.placement) or self.array.sharding
        return _spec(self.array.shape, self.array.dtype, sharding, getattr(self.array, "weak_type", False))

    def fetch(self, order: Order, chunking: Chunking) -> DeviceBlock:
        start = order.window() if len(order) == chunking.size else None
        if start is None:
            block = _kernels.gather(self.array, order.indices(chunking.size, len(self)))
        else:
            block = _kernels.window(self.array, start, chunking.size)
        return DeviceBlock.of(_place(block, _block_placement(self.placement)), len(order), chunking.step)

    def context(self) -> Hashable:
        # an uncommitted array's rows go where the default device is when they are made
        return self.array.is_deleted(), jax.config.jax_default_device


@dataclass(frozen=True, slots=True)
class TracedBlock:
    """All rows wanted, unstacked by one split: under a trace every operation costs compile time, and none can wait."""

    array: jax.Array

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def step(self) -> int:
        return max(1, len(self))

    def rows(self, start: int) -> list[jax.Array]:
        return list(jnp.unstack(self.array))

    def arrays(self) -> list[jax.Array]:
        return [self.array]


@dataclass(frozen=True, slots=True)
class TracedSource:
    """A tracer, or an array beside one in a tree."""

    array: jax.Array

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return _spec(self.array.shape, self.array.dtype, None, getattr(self.array, "weak_type", False))

    def fetch(self, order: Order, chunking: Chunking) -> TracedBlock:
        return TracedBlock(self.array[order.as_index()])

    def row(self, position: "int | jax.Array") -> jax.Array:
        return self.array[position]

    def context(self) -> Hashable:
        return None


@dataclass(frozen=True, slots=True)
class HostSource:
    """A NumPy array: blocks are copied out in the order wanted, then put on the device.

    The copy is what makes rows immutable: `device_put` aliases NumPy memory on CPU where alignment allows.
    """

    array: NDArray[Any]
    placement: Placement = None

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return _spec(self.array.shape, self._dtype, _sharding(self.placement), False)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return jax.dtypes.canonicalize_dtype(self.array.dtype.newbyteorder("="))

    def fetch(self, order: Order, chunking: Chunking) -> DeviceBlock:
        rows = np.zeros((chunking.size, *self.array.shape[1:]), self._dtype)
        rows[: len(order)] = self.array[order.as_index()]
        block = jax.device_put(rows, _block_placement(self.placement))
        return DeviceBlock.of(block, len(order), chunking.step)

    def row(self, position: "int | jax.Array") -> jax.Array:
        if isinstance(position, jax.core.Tracer):
            raise TypeError("a traced index needs rows of a jax.Array; these are on the host: view jnp.asarray(x)")
        return jax.device_put(np.array(self.array[position], self._dtype), self.placement)

    def context(self) -> Hashable:
        # an array in memory is as cheap to read again as a kept block, and shows what was written to it since
        return object()


@dataclass(frozen=True, slots=True)
class NestedSource:
    """A view inside a tree: the rows of its source, in its order."""

    source: Source
    order: Order

    def __len__(self) -> int:
        return len(self.order)

    @property
    def element_spec(self) -> Any:
        return self.source.element_spec

    def fetch(self, order: Order, chunking: Chunking) -> Block:
        return self.source.fetch(self.order.then(order), chunking)

    def row(self, position: "int | jax.Array") -> Any:
        return self.source.row(locate(self.order, position))

    def context(self) -> Hashable:
        return self.source.context()


@dataclass(frozen=True, slots=True)
class TreeBlock:
    """One block for each leaf of a pytree, row by row in step."""

    treedef: Any
    blocks: "Sequence[Block]"

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def step(self) -> int:
        return self.blocks[0].step

    def rows(self, start: int) -> list[Any]:
        return [self.treedef.unflatten(leaves) for leaves in zip(*(block.rows(start) for block in self.blocks))]

    def arrays(self) -> list[jax.Array]:
        return [array for block in self.blocks for array in block.arrays()]


@dataclass(frozen=True, slots=True)
class TreeSource:
    """A pytree of sources of one length; rows are pytrees of the same structure.

    Each leaf keeps its own programs, so that a row's leaves are as its leaf alone would give them: on their
    own devices, committed or not.
    """

    treedef: Any
    sources: "Sequence[Source]"

    def __len__(self) -> int:
        return len(self.sources[0])

    @property
    def element_spec(self) -> Any:
        return self.treedef.unflatten([source.element_spec for source in self.sources])

    def fetch(self, order: Order, chunking: Chunking) -> TreeBlock:
        return TreeBlock(self.treedef, [source.fetch(order, chunking) for source in self.sources])

    def row(self, position: "int | jax.Array") -> Any:
        return self.treedef.unflatten([source.row(position) for source in self.sources])

    def context(self) -> Hashable:
        return tuple(source.context() for source in self.sources)


def source_of(tree: Any, placement: Placement = None, traced: bool = False) -> Source:
    """The source of the rows of an array or a pytree of arrays, or the error that says why it has none.

    Raises:
      TypeError: a leaf is 0-d, or no array of a dtype JAX has; the leaf is named by its key path.
      ValueError: there are no leaves, or their leading lengths differ.
    """
    traced = traced or any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_view)
    if not leaves:
        raise ValueError(f"there are no rows to take: {tree!r} has no array leaves")
    sources = [_leaf_source(leaf, jax.tree_util.keystr(path), placement, traced) for path, leaf in leaves]
    if len({len(source) for source in sources}) > 1:
        named = ", ".join(f"{jax.tree_util.keystr(path)} has {_shape_text(leaf)}" for path, leaf in leaves)
        raise ValueError(f"the leaves must have one common leading length: {named}")
    return sources[0] if jax.tree_util.treedef_is_leaf(treedef) else TreeSource(treedef, sources)


def as_row(value: Any, spec: Any) -> "list[NDArray[Any]] | None":
    """The leaves of a value as those of a row of this spec; None if no such row can equal it.

    A row equals it where every element does, as NumPy and JAX compare: a Python float is taken at the row's precision,
    and an integer row never equals a fraction.
    """
    wanted, treedef = jax.tree.flatten(spec)
    leaves, structure = jax.tree.flatten(value)
    if structure != treedef:
        return None
    found = [_as_leaf(leaf, leaf_spec) for leaf, leaf_spec in zip(leaves, wanted)]
    return None if any(leaf is None for leaf in found) else cast("list[NDArray[Any]]", found)


def _as_leaf(value: Any, spec: jax.ShapeDtypeStruct) -> "NDArray[Any] | None":
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        same = getattr(value, "dtype", None) == spec.dtype and value.shape == spec.shape
        return np.asarray(jax.device_get(jax.random.key_data(value))) if same else None
    exact = not isinstance(value, float | complex)
    try:
        given = np.asarray(jax.device_get(value))
        with np.errstate(all="ignore"):
            given = given.astype(jax.dtypes.canonicalize_dtype(given.dtype)) if exact else given.astype(spec.dtype)
            leaf = given.astype(spec.dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    return leaf if given.shape == spec.shape and np.array_equal(leaf, given) else None


def is_traced(row: Any) -> bool:
    """Whether a row belongs to a trace, and so must not outlive it."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(row))


def locate(order: Order, index: "int | jax.Array") -> "int | jax.Array":
    """The source position of row `index` of an order; a traced index wraps and is clamped, as JAX's are."""
    if not isinstance(index, jax.core.Tracer):
        return order[cast("int", index)]
    length = len(order)
    if not length:
        raise IndexError("a traced index cannot index 0 rows")
    index = index.astype(jax.dtypes.canonicalize_dtype(np.int64))
    index = jnp.clip(jnp.where(index < 0, index + length, index), 0, length - 1)
    span = order.positions
    return span.start + span.step * index if isinstance(span, range) else jnp.asarray(span)[index]


def _leaf_source(leaf: Any, name: str, placement: Placement, traced: bool) -> Source:
    where = f" at {name}" if name else ""
    if _is_view(leaf):
        return leaf.__row_source__(placement, traced)
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic) or isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(f"cannot take the rows of {_named(leaf)}{where}: they must be of a jax.Array or a numpy.ndarray")
    if leaf.ndim == 0:
        raise TypeError(f"iteration over a 0-d array{where}")
    if isinstance(leaf, np.ndarray):
        _check_dtype(leaf, where)
    if traced:
        return TracedSource(jnp.asarray(leaf))
    return DeviceSource.of(leaf, placement) if isinstance(leaf, jax.Array) else HostSource(leaf, placement)


def _check_dtype(array: NDArray[Any], where: str) -> None:
    # JAX has the dtypes that jax.numpy has a name for: no object, string, date, record or long double
    if not hasattr(jnp, array.dtype.name):
        raise TypeError(f"cannot take the rows of {_named(array)}{where}: JAX has no dtype {array.dtype}")


def _is_view(leaf: Any) -> bool:
    return hasattr(leaf, "__row_source__")


def _named(leaf: Any) -> str:
    shape = getattr(leaf, "shape", None)
    return type(leaf).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _shape_text(leaf: Any) -> str:
    return repr(leaf) if _is_view(leaf) else f"shape {leaf.shape}"


def _spec(shape: tuple[int, ...], dtype: Any, sharding: "Sharding | None", weak_type: bool) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape[1:], dtype, sharding=sharding, weak_type=weak_type)


def _place(x: jax.Array, placement: Placement) -> jax.Array:
    return x if placement is None else jax.device_put(x, placement)


def _sharding(placement: Placement) -> "Sharding | None":
    return SingleDeviceSharding(placement) if isinstance(placement, jax.Device) else placement


def _block_placement(placement: Placement) -> Placement:
    """Where a block goes whose rows go to `placement`: its leading axis is not split."""
    if isinstance(placement, NamedSharding):
        return NamedSharding(placement.mesh, PartitionSpec(None, *placement.spec))
    return placement
