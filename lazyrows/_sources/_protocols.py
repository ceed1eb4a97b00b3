"""What a leaf is: the rows of one array, read from the host or gathered on a device."""

import math
from collections.abc import Hashable
from functools import lru_cache
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

    @property
    def traced(self) -> bool:
        """Whether rows belong to a trace, where every operation costs compile time, and none can wait."""
        ...

    @property
    def row_bytes(self) -> int:
        """How many bytes a row has."""
        ...

    @property
    def whole(self) -> "jax.Array | None":
        """All rows in one array, where there is one with nothing to do for it."""
        ...

    def __len__(self) -> int: ...

    def read(self, order: Order, size: int) -> Any:
        """What `load` needs of the rows of `order`; the only method that a thread may call, and calls no JAX."""
        ...

    def load(self, data: Any) -> jax.Array:
        """The rows read, along the leading axis, padding included."""
        ...

    def lone(self, data: Any, place: int) -> jax.Array:
        """One of the rows read, made alone, without the leading axis."""
        ...

    def row(self, position: "int | jax.Array", /) -> jax.Array:
        """One row; a traced position is clamped."""
        ...

    def context(self) -> Hashable:
        """What, besides the position, decides a row: rows kept are good while this stays the same; None if none are."""
        ...


def row_spec(shape: tuple[int, ...], dtype: Any, placement: Placement, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """One row of an array of this shape, dtype and placement."""
    sharding = SingleDeviceSharding(placement) if isinstance(placement, jax.Device) else placement
    return jax.ShapeDtypeStruct(shape[1:], dtype, sharding=sharding, weak_type=weak_type)


def foreign_memory(sharding: Sharding) -> "str | None":
    """The kind of memory, where it is not the one that its devices compute in."""
    kind = sharding.memory_kind
    return None if kind in (None, _computing_memory(next(iter(sharding.device_set)))) else kind


@lru_cache
def _computing_memory(device: Any) -> str:
    return device.default_memory().kind


def row_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """How many bytes a row of an array of this shape and dtype has."""
    return math.prod(shape[1:]) * dtype.itemsize


def has_block(sharding: Sharding) -> bool:
    """Whether a block of rows can be placed so that each row is of this sharding."""
    return isinstance(sharding, NamedSharding) or len(sharding.device_set) == 1


def block_placement(placement: Placement) -> Placement:
    """Where a block goes whose rows go to `placement`: its leading axis is not split."""
    if isinstance(placement, NamedSharding):
        return NamedSharding(placement.mesh, PartitionSpec(None, *placement.spec), memory_kind=placement.memory_kind)
    return placement


def misfit(placement: Placement, shape: tuple[int, ...]) -> "str | None":
    """What keeps a row of this shape from being placed so."""
    if not isinstance(placement, NamedSharding):
        return None
    if len(placement.spec) > len(shape):
        return f"its rows have {len(shape)} axes, and {placement.spec} is for {len(placement.spec)}"
    try:
        placement.shard_shape(shape)
    except ValueError as error:
        return str(error)
    return None
