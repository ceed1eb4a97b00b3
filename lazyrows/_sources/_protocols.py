"""What a source is: it says how many rows it has and what one looks like, and makes a block of them or a single one."""

from collections.abc import Hashable
from typing import Any, Protocol, TypeAlias

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from lazyrows._kernels import Chunking
from lazyrows._orders import Order

# where rows go: a sharding, or a jax.Device, whose type checkers do not know; None is where JAX would put them
Placement: TypeAlias = "Sharding | Any | None"


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

    def row(self, position: "int | jax.Array", /) -> Any:
        """One row; a traced position is clamped."""
        ...

    def context(self) -> Hashable:
        """What, besides the position, decides a row: a kept block is good only while this stays the same."""
        ...


def row_spec(shape: tuple[int, ...], dtype: Any, placement: Placement, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """One row of an array of this shape, dtype and placement."""
    sharding = SingleDeviceSharding(placement) if isinstance(placement, jax.Device) else placement
    return jax.ShapeDtypeStruct(shape[1:], dtype, sharding=sharding, weak_type=weak_type)


def put(array: Any, placement: Placement) -> jax.Array:
    """One row, or whatever goes where rows go, at its place."""
    return array if placement is None else jax.device_put(array, placement)


def block_placement(placement: Placement) -> Placement:
    """Where a block goes whose rows go to `placement`: its leading axis is not split."""
    if isinstance(placement, NamedSharding):
        return NamedSharding(placement.mesh, PartitionSpec(None, *placement.spec))
    return placement
