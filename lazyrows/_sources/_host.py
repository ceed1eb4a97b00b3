"""Arrays in the host's memory or on its disks: blocks of rows are read into memory of our own, then put on a device.

Only slices of neighbours in ascending order are asked of anything but a NumPy array; HDF5 has no others. The memory
read into is never written to again, which is what makes rows immutable: `device_put` may alias it.
"""

import math
import mmap
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from numpy.typing import NDArray

from lazyrows._orders import Order
from lazyrows._sources._protocols import Placement, block_placement, row_bytes, row_spec

_config: Any = jax.config

# What XLA:CPU wants of memory to take it as it is, without a copy. µs per 4 KiB row of a memmap, whole passes in blocks
# of 1024 rows, as `np.empty` has them and aligned: JAX 0.6.2 3.6 / 2.6, 0.12 3.1 / 2.8.
ALIGNMENT = 64

# Bytes that nobody wants, and that are read all the same where they lie between others: reading them is cheaper than
# another read. µs for 1 / 64 / 256 / 1000 rows of 4 KiB: HDF5 28 / 50 / 139 / 510, TensorStore 169 / 327 / 885 / 2890.
GAP_BYTES = 2**17


@dataclass(frozen=True, slots=True)
class HostLeaf:
    """Anything with `shape`, `dtype` and slices that are arrays."""

    array: Any
    dtype: np.dtype[Any]
    align: int
    placement: Placement
    stored: bool
    mapping: "_Mapping | None"
    whole = None
    traced = False

    @classmethod
    def of(cls, array: Any, placement: Placement) -> "HostLeaf":
        stored = not isinstance(array, np.ndarray) or isinstance(array, np.memmap)
        plain = np.asarray(array) if isinstance(array, np.ndarray) else array  # a np.matrix has no 1-D rows
        return cls(plain, dtype_of(array), _stored_together(array), placement, stored, _Mapping.of(array))

    def __len__(self) -> int:
        return self.array.shape[0]

    @property
    def element_spec(self) -> jax.ShapeDtypeStruct:
        return row_spec(tuple(self.array.shape), jax.dtypes.canonicalize_dtype(self.dtype), self.placement)

    @property
    def row_bytes(self) -> int:
        return row_bytes(tuple(self.array.shape), self.dtype)

    def read(self, order: Order, size: int) -> NDArray[Any]:
        rows = _empty((size, *self.array.shape[1:]), self.dtype)
        if not isinstance(self.array, np.ndarray):
            for window, places, chosen in order.reads(size, self.align, GAP_BYTES // max(1, self.row_bytes)):
                rows[places] = self._read(window)[chosen]
        elif len(order):
            if self.mapping:
                self.mapping.check(self.array, *order.span())
            rows[: len(order)] = self.array[order.as_index()]
        rows[len(order) :] = 0
        return rows

    def _read(self, window: slice) -> NDArray[Any]:
        part = np.asarray(self.array[window])
        wanted = (window.stop - window.start, *self.array.shape[1:])
        if part.shape != wanted or part.dtype.newbyteorder("=") != self.dtype:
            raise ValueError(
                f"rows {window.start} to {window.stop} of {type(self.array).__name__} came as {part.dtype} of shape "
                f"{part.shape}, where it had declared {self.dtype} of shape {wanted}"
            )
        return part

    def load(self, data: NDArray[Any]) -> jax.Array:
        return jax.device_put(data, block_placement(self.placement))

    def lone(self, data: NDArray[Any], place: int) -> jax.Array:
        # a copy, where there are others: a row kept would keep them all
        return jax.device_put(data[place].copy() if len(data) > 1 else data[place], self.placement)

    def row(self, position: "int | jax.Array", /) -> jax.Array:
        if isinstance(position, Tracer):
            raise TypeError("a traced index needs rows of a jax.Array; these are on the host: view jnp.asarray(x)")
        return self.lone(self.read(Order(range(position, position + 1)), 1), 0)

    def context(self) -> Hashable:
        # an array in memory is as cheap to read again as a kept block, and shows what was written to it since
        return (_config.jax_enable_x64, _config.jax_default_device) if self.stored else None


@dataclass(frozen=True, slots=True)
class _Mapping:
    """The file that an array in memory stands for; to touch what has been cut off it would kill the process."""

    file: mmap.mmap
    name: Any
    before: int
    """What to take from an address for the place in the file."""

    @classmethod
    def of(cls, array: Any) -> "_Mapping | None":
        base: Any = array if isinstance(array, np.memmap) else None
        while isinstance(base, np.ndarray):
            base = base.base
        if not isinstance(base, mmap.mmap):
            return None
        start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        return cls(base, array.filename, np.frombuffer(base, np.uint8, 1).ctypes.data - start)

    def check(self, array: NDArray[Any], first: int, last: int) -> None:
        """Raise OSError where the file ends before these rows of the array do."""
        end = np.lib.array_utils.byte_bounds(array[first : last + 1])[1] - self.before
        size = self.file.size()
        if size < end:
            raise OSError(
                f"{self.name or 'the file'} is shorter than the array mapped from it: {size} bytes, not {end}"
            )


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array like `numpy.empty`'s that XLA need not copy."""
    count = math.prod(shape) * dtype.itemsize
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count].view(dtype).reshape(shape)


def dtype_of(array: Any) -> np.dtype[Any]:
    """The dtype of an array as NumPy has it, in native byte order; TensorStore has dtypes of its own."""
    return np.dtype(getattr(array.dtype, "numpy_dtype", array.dtype)).newbyteorder("=")


def _stored_together(array: Any) -> int:
    """How many rows share a storage chunk: of HDF5, Zarr, Dask, or TensorStore."""
    layout = getattr(getattr(array, "chunk_layout", None), "read_chunk", None)
    shape = getattr(array, "chunks", None) or getattr(layout, "shape", None)
    rows = shape[0] if shape else 1
    return max(1, int(rows[0] if isinstance(rows, tuple) else rows or 1))
