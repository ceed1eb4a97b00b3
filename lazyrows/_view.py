"""`RowView`, a sequence of the rows of arrays, and `iter`, which makes one.

A view is a source, an order and options, none of which ever changes: slicing slices the order, reversing
slices it backwards, and only asking for a row, or the next one, does any work.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, SupportsIndex, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import DTypeLike, NDArray

from lazyrows import _kernels
from lazyrows._kernels import Chunking
from lazyrows._matching import matches
from lazyrows._options import DEFAULT, Options
from lazyrows._orders import Order
from lazyrows._prefetch import Recent, RowIterator
from lazyrows._sources import OrderedLeaf, Placement, Source, is_traced, locate, source_of

Row = TypeVar("Row")


@jax.tree_util.register_pytree_node_class
class RowView(Sequence[Row]):
    """The rows of an array, or of a pytree of arrays, as a lazy sequence. `lazyrows.iter` makes one.

    It behaves as the list `[x[i] for i in range(len(x))]` for every operation a list has, except that rows are made
    when asked for, on the device, and that slices and reversals are views too: they cost nothing and compile nothing.

    >>> rows = lazyrows.iter(jnp.arange(12).reshape(6, 2))
    >>> rows
    RowView(6 rows of int32[2])
    >>> rows[-1]
    Array([10, 11], dtype=int32)
    >>> [int(row.sum()) for row in rows[::-2]]
    [21, 13, 5]

    An integer gives a row: anything with `__index__`, or a traced integer, which is clamped as JAX clamps it. A slice,
    a list or 1-D array of integers, or a boolean mask of length `len(rows)` gives a view in that order.

    >>> rows[[4, 0]], rows[1:-1][rows.stack()[1:-1, 0] > 4]
    (RowView(2 rows of int32[2]), RowView(2 rows of int32[2]))

    A view is a pytree whose leaves are its source's arrays, so it may be an argument of a jitted function. It may be
    shared between threads, pickled and copied. Its iterators may not: each is for one thread.

    Raises:
      IndexError: an integer out of range, in a list with its position; a mask of another length.
      TypeError: any other index, with what to write instead.
      RuntimeError: JAX's own, where the source has been deleted or donated when a row is made.
    """

    _tree: Any
    _order: Order
    _options: Options
    _shapes: "tuple[Any, ...] | None"

    def __init__(self, tree: Any, order: Order, options: Options, shapes: "tuple[Any, ...] | None" = None) -> None:
        self._tree, self._order, self._options, self._shapes = tree, order, options, shapes

    def _reorder(self, order: Order) -> "RowView[Row]":
        view: RowView[Row] = RowView.__new__(RowView)
        view.__dict__.update(self.__dict__, _order=order)  # with the source, its chunking and the recent chunk
        return view

    @cached_property
    def _source(self) -> Source:
        # set by `iter`, and made here for a view rebuilt by a transformation or pickling, or given other options
        return self._source_at(self._options.device, traced=False)

    def __with_options__(self, options: Options) -> "RowView[Row]":
        view: RowView[Row] = RowView(self._tree, self._order, self._options.updated(options), self._shapes)
        view.__dict__["_source"] = view._source_at(
            view._options.device, traced=False
        )  # at once: rows may not fit there
        return view

    def _source_at(self, placement: Placement, traced: bool) -> Source:
        if self._shapes not in (None, _shapes(self._tree)):
            raise ValueError(
                f"this view is of arrays of shapes {self._shapes}, and a transformation has put others in their place, "
                f"of {_shapes(self._tree)}: to map or scan over rows, pass rows.stack()"
            )
        return source_of(self._tree, placement, traced)

    @cached_property
    def _chunking(self) -> Chunking:
        source = self._source
        return _kernels.chunking(self._options.chunk_size, len(source), source.row_bytes, source.align)

    @cached_property
    def _row(self) -> Callable[[int], Row]:
        source, chunking = self._source, self._chunking
        if chunking.size == 1 or source.context() is None:
            return source.row
        # bound to the source, not to the view: a cycle would keep chunks alive until the garbage collector comes
        fetch = partial(source.numbered, *chunking)
        return Recent(source.row, fetch, chunking.size, source.context, is_traced, eager=source.together).row

    @property
    def element_spec(self) -> Any:
        """What every row is: a `jax.ShapeDtypeStruct`, or a pytree of them, with dtype, weak type and sharding."""
        return self._source.element_spec

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: "SupportsIndex | jax.Array") -> Row: ...
    @overload
    def __getitem__(self, index: "slice | Sequence[Any] | NDArray[Any]") -> "RowView[Row]": ...
    def __getitem__(self, index: Any) -> Any:
        if type(index) is int:
            return self._row(self._order[index])
        if isinstance(index, slice):
            return self._reorder(self._order.slice(index))
        if isinstance(index, Tracer):
            return self._source.row(locate(self._order, index))
        index = _on_host(index)
        if isinstance(index, list | range | np.ndarray):
            return self._reorder(self._order.select(index))
        return self._row(self._order[index])

    def __iter__(self) -> RowIterator[Row]:
        return RowIterator.over(self._groups(), len(self))

    def __reversed__(self) -> RowIterator[Row]:
        return builtins.iter(self[::-1])

    def _groups(self) -> Iterator[Sequence[Row]]:
        at_once = self._at_once()
        if at_once is not None:
            yield at_once
            return
        source, order = self._source, self._order
        few = len(order) < _kernels.EXPLODE_ROWS
        if len(order) and not (source.traced or source.together or (source.align and few)):
            yield [source.row(order[0])]  # alone, so that it comes at once
            order = order.slice(slice(1, None))
        for groups in self._chunks(order):
            yield from groups

    def _at_once(self) -> "list[Row] | None":
        """The rows, where the source has no more than are made at a time anyway."""
        positions, length = self._order.positions, len(self._source)
        if not 0 < length <= _kernels.EXPLODE_TINY_ROWS:  # the most that step can be, found without the chunking
            return None
        if not isinstance(positions, range) or length > self._chunking.step:
            return None
        rows = self._source.at_once()
        return None if rows is None else [rows[position] for position in positions]

    def _chunks(self, order: Order) -> "Iterator[Iterable[Sequence[Row]]]":
        source, options, chunking = self._source, self._options, self._chunking
        if source.align and not options.chunk_size:
            chunking = _kernels.lengthened(chunking, len(order), source.row_bytes)
        size, step = chunking
        if source.traced:
            size = step = len(order)
        elif len(order) < _kernels.EXPLODE_ROWS and not source.together:
            size, step = min(size, len(order)), 1
        return source.stream(order, size, partial(source.groups, step=step), options.depth)

    def stack(self) -> Any:
        """Return the rows as one array of shape `(len(rows), *row.shape)`, or as a pytree of such arrays.

        One gather, or one read and transfer; equal to `jnp.stack(list(rows))`, and always a new array.
        """
        source = self._source
        return source.unflatten(source.arrays(source.read(self._order, len(self))))

    def __contains__(self, value: object) -> bool:
        return any(found.any() for found in self._matches(value))

    def count(self, value: Any) -> int:
        """Return how many rows equal `value` in all leaves and elements; waits for the rows."""
        return sum(int(found.sum()) for found in self._matches(value))

    def index(self, value: Any, start: int = 0, stop: "int | None" = None) -> int:
        """Return the first position of a row equal to `value`, as `list.index` does; waits for the rows.

        Raises:
          ValueError: no row between `start` and `stop` equals `value`.
        """
        window = range(len(self))[start:stop]
        seen = window.start
        for found in self[start:stop]._matches(value):
            if found.any():
                return seen + int(found.argmax())
            seen += len(found)
        raise ValueError(f"{value!r} is not among the rows")

    def _matches(self, value: Any) -> "Iterator[NDArray[np.bool_]]":
        return matches(self._source, self._order, self._chunking.size, self._options.depth, value)

    def __array__(self, dtype: "DTypeLike | None" = None, copy: "bool | None" = None) -> NDArray[Any]:
        """The rows as one NumPy array, for rows that are arrays; waits for them."""
        if copy is False:
            raise ValueError("rows are on a device: making a NumPy array of them needs a copy")
        return np.array(self.__jax_array__(), dtype, copy=copy)

    def __jax_array__(self) -> jax.Array:
        """The rows as one array, for rows that are arrays."""
        if not isinstance(self.element_spec, jax.ShapeDtypeStruct):
            raise TypeError("rows that are pytrees make no one array: use rows.stack(), which is a pytree of arrays")
        return self.stack()

    def __row_leaves__(self, placement: Placement, traced: bool) -> Any:
        source = self._source_at(placement or self._options.device, traced)
        return source.unflatten([OrderedLeaf(leaf, self._order) for leaf in source.leaves])

    def __reduce__(self) -> Any:
        return RowView, (self._tree, self._order, self._options, self._shapes)

    def tree_flatten(self) -> "tuple[tuple[Any], tuple[Order, Options, tuple[Any, ...]]]":
        """For JAX: the arrays are the source's, all else is static."""
        return (self._tree,), (self._order, self._options, self._shapes or _shapes(self._tree))

    @classmethod
    def tree_unflatten(cls, aux: "tuple[Order, Options, tuple[Any, ...]]", children: "tuple[Any]") -> "RowView[Any]":
        """For JAX: the same view of other arrays, which are looked at when a row is asked for."""
        return cls(*children, *aux)

    def __repr__(self) -> str:
        rows = f"{len(self)} row{'' if len(self) == 1 else 's'}"
        try:
            spec = self.element_spec
        except ValueError:  # rebuilt by a transformation around other leaves
            return f"RowView({rows})"
        return f"RowView({rows} of {jax.tree.map(_Text.of, spec)})"


class _Text(str):
    """A string that is its own repr, for trees of them."""

    __slots__ = ()
    __repr__ = str.__str__

    @classmethod
    def of(cls, spec: jax.ShapeDtypeStruct) -> "_Text":
        return cls(f"{spec.dtype.name}[{','.join(map(str, spec.shape))}]")


def _shapes(tree: Any) -> "tuple[Any, ...]":
    return tuple(getattr(leaf, "shape", None) for leaf in jax.tree.leaves(tree))


def _on_host(index: Any) -> Any:
    """An index without JAX: an array as NumPy's, where a 0-d one is a scalar and 4-bit integers are integers."""
    if isinstance(index, jax.Array):
        index = np.asarray(jax.device_get(index))
    if isinstance(index, np.ndarray) and not index.ndim:
        return index.item()
    if isinstance(index, np.ndarray) and jnp.issubdtype(index.dtype, jnp.integer) and index.dtype.itemsize == 1:
        return index.astype(np.int32)
    return index


@overload
def iter(
    source: "RowView[Row]",
    /,
    *,
    chunk_size: "int | None" = None,
    prefetch: "int | None" = None,
    device: Placement = None,
) -> "RowView[Row]": ...
@overload
def iter(
    source: "jax.Array | NDArray[Any]",
    /,
    *,
    chunk_size: "int | None" = None,
    prefetch: "int | None" = None,
    device: Placement = None,
) -> "RowView[jax.Array]": ...
@overload
def iter(
    source: Any, /, *, chunk_size: "int | None" = None, prefetch: "int | None" = None, device: Placement = None
) -> "RowView[Any]": ...
def iter(
    source: Any, /, *, chunk_size: "int | None" = None, prefetch: "int | None" = None, device: Placement = None
) -> "RowView[Any]":
    """Return the rows of an array, or of a pytree of arrays with one common leading length, as a lazy sequence.

    Building it reads nothing, compiles nothing and starts nothing. Rows are made when asked for, a chunk at a time. No
    value of the source is read, so that rows may be taken of an array that is still being computed.

    >>> x = jnp.arange(6.0).reshape(3, 2)
    >>> for row in lazyrows.iter(x):
    ...     print(row)
    [0. 1.]
    [2. 3.]
    [4. 5.]
    >>> first, *others = lazyrows.iter({"x": x, "y": np.arange(3)})
    >>> first
    {'x': Array([0., 1.], dtype=float32), 'y': Array(0, dtype=int32)}

    Each row is what `x[i]` is: in value, dtype, weak type, device and committed-ness. Rows of NumPy arrays have the
    dtype that `jnp.asarray` gives, and are copies. Under a transformation (`jit`, `grad`, `vmap`) rows are traced, and
    a loop over them is unrolled: to compile one body for all rows, use `jax.lax.scan` over `rows.stack()`.

    Args:
      source: a `jax.Array` of shape `(n, ...)` on one device, of any dtype, typed keys included; a tracer of that
        shape; a `numpy.ndarray` of it, or anything with `shape`, `dtype` and slices, as `h5py.Dataset` and
        `zarr.Array` have; a `RowView`; or a pytree of these, all of the same `n`.
      chunk_size: how many rows to make together, at least 1. By default as many as fit a small budget of bytes.
      prefetch: how many chunks to make ahead of the one being consumed, at least 0: one by default, and 0 for none.
        A paused iterator holds at most `prefetch + 2` chunks.
      device: a `jax.Device`, or a `jax.sharding.Sharding` on one, for the rows. By default where JAX would put them, as
        always under a transformation.

    Returns:
      A `RowView` of `n` rows; for a `RowView`, the same one, or with options the same rows under these options.

    Raises:
      TypeError: a leaf is 0-d, or no array, or of a dtype that JAX does not support; or an option is of another type.
      ValueError: there are no leaves, or their leading lengths differ; or an option is below its least value.
      RuntimeError: JAX's own, if an array of the source has been deleted or donated.
    """
    given = chunk_size is not None or prefetch is not None or device is not None
    options = Options(chunk_size, prefetch, device) if given else DEFAULT
    if isinstance(source, RowView):
        return source.__with_options__(options) if given else source
    rows = source_of(source, device)
    # the containers are ours, the leaves the caller's: who changes a dict that was viewed changes no view
    tree = source if isinstance(source, jax.Array) else jax.tree.map(lambda leaf: leaf, source)
    view: RowView[Any] = RowView(tree, Order(range(len(rows))), options)
    view.__dict__["_source"] = rows
    return view


# as users know them
RowView.__module__ = iter.__module__ = "lazyrows"
