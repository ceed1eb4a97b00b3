"""Arrays in NumPy's memory: blocks of rows are copied out, put on a device, and exploded there."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from lazyrows._kernels import Chunking
from lazyrows._orders import Order
from lazyrows._sources._device import DeviceBlock
from lazyrows._sources._protocols import Placement, block_placement, row_spec


@dataclass(frozen=True, slots=True)
class HostSource:
    """A NumPy array: blocks are copied out in the order wanted, then put on the device.

    The copy is what makes rows immutable: `device_put` aliases NumPy memory on CPU where alignment allows.
    """

    array: NDArray[Any]
    placement: Placement = None

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return row_spec(self.array.shape, self._dtype, self.placement)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return jax.dtypes.canonicalize_dtype(self.array.dtype.newbyteorder("="))

    def fetch(self, order: Order, chunking: Chunking) -> DeviceBlock:
        rows = np.zeros((chunking.size, *self.array.shape[1:]), self._dtype)
        rows[: len(order)] = self.array[order.as_index()]
        block = jax.device_put(rows, block_placement(self.placement))
        return DeviceBlock.of(block, len(order), chunking.step)

    def row(self, position: "int | jax.Array") -> jax.Array:
        if isinstance(position, Tracer):
            raise TypeError("a traced index needs rows of a jax.Array; these are on the host: view jnp.asarray(x)")
        return jax.device_put(np.array(self.array[position], self._dtype), self.placement)

    def context(self) -> Hashable:
        # an array in memory is as cheap to read again as a kept block, and shows what was written to it since
        return object()
