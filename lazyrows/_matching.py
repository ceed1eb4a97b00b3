"""Which rows equal a value: whole rows, compared on the device a block at a time, and one read back for each block."""

from collections.abc import Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from lazyrows import _kernels
from lazyrows._orders import Order
from lazyrows._sources import Reading, Source


def matches(source: Source, order: Order, size: int, depth: int, value: Any) -> "Iterator[NDArray[np.bool_]]":
    """For each chunk of the order, which of its rows equal `value`; nothing at all where no such row can."""
    wanted = _as_row(value, source.element_spec)
    if wanted is None:
        return

    def compare(reading: Reading) -> "tuple[int, list[jax.Array]]":
        pairs = zip(source.arrays(reading), wanted)
        return reading.length, [_kernels.equal_rows(array, leaf) for array, leaf in pairs]

    for length, leaves in source.stream(order, size, compare, depth):
        yield np.logical_and.reduce(jax.device_get(leaves))[:length]


def _as_row(value: Any, spec: Any) -> "list[NDArray[Any]] | None":
    """The leaves of a value as those of a row of this spec; None if no such row can equal it."""
    wanted, treedef = jax.tree.flatten(spec)
    leaves, structure = jax.tree.flatten(value)
    if structure != treedef:
        return None
    found = [_as_leaf(leaf, leaf_spec) for leaf, leaf_spec in zip(leaves, wanted)]
    return None if any(leaf is None for leaf in found) else cast("list[NDArray[Any]]", found)


def _as_leaf(value: Any, spec: jax.ShapeDtypeStruct) -> "NDArray[Any] | None":
    if isinstance(value, Tracer):
        raise jax.errors.TracerBoolConversionError(value)
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        same = getattr(value, "dtype", None) == spec.dtype and value.shape == spec.shape
        return np.asarray(jax.device_get(jax.random.key_data(value))) if same else None
    try:
        given = np.asarray(jax.device_get(value))
        return _exactly(given, spec.dtype, isinstance(value, float | complex)) if given.shape == spec.shape else None
    except (TypeError, ValueError, OverflowError):
        return None


def _exactly(given: NDArray[Any], dtype: Any, weak: bool) -> "NDArray[Any] | None":
    """The value in a row's dtype, where it stays the same in it.

    As where JAX compares, a Python float is first taken at the row's precision, and one of 64 bits at 32 without x64.
    """
    lossy = np.iscomplexobj(given) and not jnp.issubdtype(dtype, jnp.complexfloating)
    if given.dtype.kind in "OSUMm" or (lossy and np.imag(given).any()):
        return None
    given = np.real(given) if lossy else given
    with np.errstate(all="ignore"):
        if jnp.issubdtype(given.dtype, jnp.inexact) and jnp.issubdtype(dtype, jnp.inexact):
            given = given.astype(dtype if weak else _as_configured(given.dtype, dtype))
        leaf = given.astype(dtype)
        return leaf if np.array_equal(leaf.astype(given.dtype), given) else None


def _as_configured(given: Any, dtype: Any) -> Any:
    """What JAX takes a dtype as at present; itself, beside a row that is of 64 bits all the same."""
    configured = jax.dtypes.canonicalize_dtype
    return configured(given) if configured(dtype) == dtype else given
