"""What can be viewed, and how each kind makes its rows: arrays on a device, traced, on the host, and trees of them.

Everything is checked in `source_of`, once; a source built by it reads nothing until it is asked for a row.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Sharding

from lazyrows._sources._device import DeviceLeaf
from lazyrows._sources._host import HostLeaf, dtype_of
from lazyrows._sources._protocols import Placement, foreign_memory, has_block, misfit
from lazyrows._sources._traced import TracedLeaf, is_traced, locate
from lazyrows._sources._trees import Block, OrderedLeaf, Reading, Source

__all__ = [
    "Block",
    "OrderedLeaf",
    "Placement",
    "Reading",
    "Source",
    "foreign_memory",
    "has_block",
    "is_traced",
    "locate",
    "source_of",
]


def source_of(tree: Any, placement: Placement = None, traced: bool = False) -> Source:
    """The source of the rows of an array or a pytree of arrays, or the error that says why it has none.

    Raises:
      TypeError: a leaf is 0-d, or no array of a dtype JAX has; the leaf is named by its key path.
      ValueError: there are no leaves, or their leading lengths differ.
    """
    if isinstance(tree, jax.Array):  # what the rest comes to then; it costs more than the making of a row
        return Source(None, [_rows_of(tree, "", placement, traced or isinstance(tree, Tracer))])
    traced = traced or is_traced(tree)
    given, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_view)
    if not given:
        raise ValueError(f"there are no rows to take: {tree!r} has no array leaves")
    made = [_rows_of(leaf, jax.tree_util.keystr(path), placement, traced) for path, leaf in given]
    leaves, treedef = jax.tree.flatten(treedef.unflatten(made))  # once more, as a view inside has leaves of its own
    if len({len(leaf) for leaf in leaves}) > 1:
        named = ", ".join(f"{jax.tree_util.keystr(path)} has {_shape_text(leaf)}" for path, leaf in given)
        raise ValueError(f"the leaves must have one common leading length: {named}")
    return Source(None if jax.tree_util.treedef_is_leaf(treedef) else treedef, leaves)


def _rows_of(leaf: Any, name: str, placement: Placement, traced: bool) -> Any:
    """The leaf of these rows, or a pytree of them for those of a view."""
    where = f" at {name}" if name else ""
    if _is_view(leaf):
        return leaf.__row_leaves__(placement, traced)
    _check(leaf, where)
    if traced:
        return TracedLeaf(jnp.asarray(leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, dtype_of(leaf))))
    obstacle = _obstacle(leaf, placement)
    if obstacle:
        raise ValueError(f"cannot take the rows of {_named(leaf)}{where}: {obstacle}")
    if not isinstance(leaf, jax.Array):
        return HostLeaf.of(leaf, placement)
    return DeviceLeaf(leaf, placement)


def _obstacle(leaf: Any, placement: Placement) -> "str | None":
    """What, about where an array is and where its rows go, keeps them from being taken."""
    held = _held_back(leaf.sharding) if isinstance(leaf, jax.Array) else None
    return held or (None if placement is None else misfit(placement, tuple(leaf.shape[1:])))


@lru_cache
def _held_back(sharding: Sharding) -> "str | None":
    if len(sharding.device_set) > 1:
        return f"it is on several devices, {sharding}; jax.device_put it on one first"
    if foreign_memory(sharding):
        return f"it is in {sharding.memory_kind} memory; jax.device_put it where its device computes first"
    return None


def _check(leaf: Any, where: str) -> None:
    on_device = isinstance(leaf, jax.Array)
    if not on_device and not _is_array(leaf):
        raise TypeError(
            f"cannot take the rows of {_named(leaf)}{where}: every leaf must be a jax.Array, a numpy.ndarray, or "
            "another array with shape, dtype and slices (a list is a pytree of its items)"
        )
    if not len(leaf.shape):
        raise TypeError(f"iteration over a 0-d array{where}")
    # JAX has the dtypes that jax.numpy has a name for: no object, string, date, record or long double
    if not on_device and not hasattr(jnp, dtype_of(leaf).name):
        raise TypeError(f"cannot take the rows of {_named(leaf)}{where}: JAX has no dtype {leaf.dtype}")


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, np.ma.MaskedArray) or not hasattr(leaf, "shape") or not hasattr(leaf, "__getitem__"):
        return False
    try:
        dtype_of(leaf)
    except (AttributeError, TypeError):  # without a dtype, or with one of its own, as torch has
        return False
    return True


def _is_view(leaf: Any) -> bool:
    return hasattr(type(leaf), "__row_leaves__")


def _named(leaf: Any) -> str:
    shape = getattr(leaf, "shape", None)
    return type(leaf).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _shape_text(leaf: Any) -> str:
    return repr(leaf) if _is_view(leaf) else f"shape {tuple(leaf.shape)}"
