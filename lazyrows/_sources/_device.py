"""Arrays on one device: blocks of rows are gathered there, and nothing waits for a value."""

from collections.abc import Hashable
from typing import Any

import jax
from numpy.typing import NDArray

from lazyrows import _kernels
from lazyrows._orders import Order
from lazyrows._sources._protocols import Placement, block_placement, row_bytes, row_spec

_config: Any = jax.config


class DeviceLeaf:
    """A `jax.Array` on one device."""

    align = None
    traced = False

    def __init__(self, array: jax.Array, placement: Placement) -> None:
        self.array, self.placement, self._length = array, placement, array.shape[0]
        row = _kernels.indexer(array)
        self.row = row if placement is None else lambda index: jax.device_put(row(index), placement)

    def __len__(self) -> int:
        return self._length

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        placement = self.placement or (self.array.sharding if self.array.committed else _default_device())
        return row_spec(self.array.shape, self.array.dtype, placement, getattr(self.array, "weak_type", False))

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.array.shape, self.array.dtype)

    @property
    def whole(self) -> "jax.Array | None":
        return self.array if self.placement is None else None

    def read(self, order: Order, size: int) -> NDArray[Any]:
        return order.indices(size, len(self))

    def load(self, data: NDArray[Any]) -> jax.Array:
        block = _kernels.gather(self.array, data)
        return block if self.placement is None else jax.device_put(block, block_placement(self.placement))

    def lone(self, data: NDArray[Any], place: int) -> jax.Array:
        return self.row(int(data[place]))

    def context(self) -> Hashable:
        # an uncommitted array's rows go where the default device is when they are made
        return self.array.is_deleted(), _config.jax_default_device


def _default_device() -> Any:
    """Where the rows of an uncommitted array go, whatever device it is on."""
    default = _config.jax_default_device
    if isinstance(default, jax.Device):
        return default
    return jax.local_devices(backend=default)[0]  # None, or the name of a platform
