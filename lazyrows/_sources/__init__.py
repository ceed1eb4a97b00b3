"""What can be viewed, and how each kind makes its rows: arrays on a device, traced, on the host, and trees of them.

Everything is checked in `source_of`, once; a source built by it reads nothing until it is asked for a row.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from lazyrows._sources._device import DeviceSource
from lazyrows._sources._host import HostSource
from lazyrows._sources._protocols import Block, Placement, Source
from lazyrows._sources._traced import TracedSource, is_traced, locate
from lazyrows._sources._trees import NestedSource, TreeSource

__all__ = ["Block", "NestedSource", "Placement", "Source", "is_traced", "locate", "source_of"]


def source_of(tree: Any, placement: Placement = None, traced: bool = False) -> Source:
    """The source of the rows of an array or a pytree of arrays, or the error that says why it has none.

    Raises:
      TypeError: a leaf is 0-d, or no array of a dtype JAX has; the leaf is named by its key path.
      ValueError: there are no leaves, or their leading lengths differ.
    """
    traced = traced or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_view)
    if not leaves:
        raise ValueError(f"there are no rows to take: {tree!r} has no array leaves")
    sources = [_leaf_source(leaf, jax.tree_util.keystr(path), placement, traced) for path, leaf in leaves]
    if len({len(source) for source in sources}) > 1:
        named = ", ".join(f"{jax.tree_util.keystr(path)} has {_shape_text(leaf)}" for path, leaf in leaves)
        raise ValueError(f"the leaves must have one common leading length: {named}")
    return sources[0] if jax.tree_util.treedef_is_leaf(treedef) else TreeSource(treedef, sources)


def _leaf_source(leaf: Any, name: str, placement: Placement, traced: bool) -> Source:
    where = f" at {name}" if name else ""
    if _is_view(leaf):
        return leaf.__row_source__(placement, traced)
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic) or isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"cannot take the rows of {_named(leaf)}{where}: they must be of a jax.Array or a numpy.ndarray"
        )
    if leaf.ndim == 0:
        raise TypeError(f"iteration over a 0-d array{where}")
    if isinstance(leaf, np.ndarray):
        _check_dtype(leaf, where)
    if traced:
        return TracedSource(jnp.asarray(leaf))
    if isinstance(leaf, np.ndarray):
        return HostSource(leaf, placement)
    if len(leaf.sharding.device_set) > 1:
        raise ValueError(
            f"cannot take the rows of {_named(leaf)}{where}: it is on more than one device, {leaf.sharding}"
        )
    return DeviceSource.of(leaf, placement)


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
