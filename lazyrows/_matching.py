"""Which rows equal a value: whole rows, compared on the device a block at a time, and one read back for each block."""

from collections.abc import Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazyrows import _kernels
from lazyrows._orders import Order
from lazyrows._sources import Reading, Source


def matches(source: Source, order: Order, size: int, depth: int, value: Any) -> "Iterator[NDArray[np.bool_]]":
    """For each chunk of the order, which of its rows equal `value`; nothing at all where no such row can."""
    wanted = _as_row(value, source.element_spec)
    if wanted is None:
        return

    def read(piece: Order) -> Reading:
        return source.read(piece, size)

    def compare(reading: Reading) -> "tuple[int, list[jax.Array]]":
        pairs = zip(source.arrays(reading), wanted)
        return reading.length, [_kernels.equal_rows(array, leaf) for array, leaf in pairs]

    for length, leaves in source.stream(order.chunks(size, source.align or 1), read, compare, depth):
        yield np.logical_and.reduce([np.asarray(equal) for equal in jax.device_get(leaves)])[:length]


def _as_row(value: Any, spec: Any) -> "list[NDArray[Any]] | None":
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
