"""Arrays under a trace: the same rows, by the operations that compile best there."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lazyrows._orders import Order
from lazyrows._sources._protocols import row_bytes, row_spec


@dataclass(frozen=True, slots=True)
class TracedLeaf:
    """A tracer, or an array beside one in a tree."""

    array: jax.Array
    align = None
    traced = True
    whole = None

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return row_spec(self.array.shape, self.array.dtype, None, getattr(self.array, "weak_type", False))

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.array.shape, self.array.dtype)

    def read(self, order: Order, size: int) -> Order:
        return order

    def load(self, data: Order) -> jax.Array:
        return self.array[data.as_index()]

    def lone(self, data: Order, place: int) -> jax.Array:
        return self.row(data[place])

    def row(self, position: "int | jax.Array", /) -> jax.Array:
        return self.array[position]

    def context(self) -> Hashable:
        return None  # rows must not outlive the trace


def is_traced(tree: Any) -> bool:
    """Whether any leaf belongs to a trace; rows of it must not outlive that."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def locate(order: Order, index: "int | jax.Array") -> "int | jax.Array":
    """The source position of row `index` of an order; a traced index wraps and is clamped, as JAX's are."""
    if not isinstance(index, Tracer):
        return order[index]
    if index.ndim or not jnp.issubdtype(index.dtype, jnp.integer):
        given = f"{index.dtype}{list(index.shape)}"
        raise TypeError(f"a traced index must be one integer, not {given}: use rows.stack()[index]")
    length = len(order)
    if not length:
        raise IndexError("a traced index cannot index 0 rows")
    index = cast("jax.Array", index).astype(jax.dtypes.canonicalize_dtype(np.int64))
    index = jnp.clip(jnp.where(index < 0, index + length, index), 0, length - 1)
    span = order.positions
    return span.start + span.step * index if isinstance(span, range) else jnp.asarray(span)[index]
