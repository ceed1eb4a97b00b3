"""What a leaf is: the rows of one array, read from the host or gathered on a device."""

from collections.abc import Hashable
from typing import Any, Protocol, TypeAlias

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from lazyrows._orders import Order

# where rows go: a sharding, or a jax.Device, whose type checkers do not know; None is where JAX would put them
Placement: TypeAlias = "Sharding | Any | None"


class Leaf(Protocol):
    """The rows of one array, by position. What it makes belongs to the config context it was made in: see `context`."""

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        """What a row is."""
        ...

    @property
    def align(self) -> "int | None":
        """How many rows are stored together, where rows must be read; None where there is nothing to read."""
        ...

    def __len__(self) -> int: ...

    def read(self, order: Order, size: int) -> Any:
        """What `load` needs of the rows of `order`; the only method that a thread may call, and calls no JAX."""
        ...

    def load(self, data: Any, size: int) -> jax.Array:
        """The rows read, along the leading axis, padded to `size` of them."""
        ...

    def lone(self, data: Any) -> jax.Array:
        """The only row read, without the leading axis."""
        ...

    def row(self, position: "int | jax.Array", /) -> jax.Array:
        """One row; a traced position is clamped."""
        ...

    def context(self) -> Hashable:
        """What, besides the position, decides a row: rows kept are good only while this stays the same."""
        ...


def row_spec(shape: tuple[int, ...], dtype: Any, placement: Placement, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """One row of an array of this shape, dtype and placement."""
    sharding = SingleDeviceSharding(placement) if isinstance(placement, jax.Device) else placement
    return jax.ShapeDtypeStruct(shape[1:], dtype, sharding=sharding, weak_type=weak_type)


def block_placement(placement: Placement) -> Placement:
    """Where a block goes whose rows go to `placement`: its leading axis is not split."""
    if isinstance(placement, NamedSharding):
        return NamedSharding(placement.mesh, PartitionSpec(None, *placement.spec))
    return placement
