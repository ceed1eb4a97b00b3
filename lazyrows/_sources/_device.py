"""Arrays on one device: blocks of rows are gathered there, then exploded into rows, and nothing waits for a value."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax

from lazyrows import _kernels
from lazyrows._kernels import Chunking
from lazyrows._orders import Order
from lazyrows._sources._protocols import Placement, block_placement, put, row_spec

_config: Any = jax.config


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
        return cls(array, placement, row if placement is None else lambda index: put(row(index), placement))

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        sharding = self.placement or self.array.sharding
        return row_spec(self.array.shape, self.array.dtype, sharding, getattr(self.array, "weak_type", False))

    def fetch(self, order: Order, chunking: Chunking) -> DeviceBlock:
        start = order.window() if len(order) == chunking.size else None
        if start is None:
            block = _kernels.gather(self.array, order.indices(chunking.size, len(self)))
        else:
            block = _kernels.window(self.array, start, chunking.size)
        return DeviceBlock.of(put(block, block_placement(self.placement)), len(order), chunking.step)

    def context(self) -> Hashable:
        # an uncommitted array's rows go where the default device is when they are made
        return self.array.is_deleted(), _config.jax_default_device
