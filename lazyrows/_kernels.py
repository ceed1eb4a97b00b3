"""The jitted programs: one row, a block of rows, a few rows of a block, which rows of a block equal one.

A block is gathered from the source in the order wanted, then exploded into rows a few at a time at offsets
that live on the device. The gather alone knows the order and the source's length; the explode alone knows
the rows, so it is compiled once for a row type, whatever the source, its length and the order.

The only file that knows how XLA behaves. Nothing here waits for a value, except `equal_rows`' caller.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Sharding
from numpy.typing import NDArray

# Rows made by one explode. XLA:CPU runs a program inline up to 8 thunks; beyond, it hands them to a thread
# pool and a call costs tens of µs more. µs per row of whole passes at 8 / 16 / 32 rows, blocks of 256:
#   int32[]       JAX 0.6.2: 2.3 / 8.7 / 3.9    0.10.2: 1.4 / 5.3 / 1.7    0.12.0.1: 1.5 / 2.8 / 1.7
#   float32[128]             2.9 / 4.0 / 4.6            2.8 / 3.0 / 2.6              2.2 / 3.1 / 2.5
# and compiling takes some 10 ms per row made. GPU and TPU: not measured.
EXPLODE_ROWS = 8

# What a chunk may hold by default: enough rows to make the gather's share small (a gather of 256 costs about as
# much as one explode), few enough bytes to come from memory the allocator has warm (see benchmarks.md).
# GPU and TPU: not measured.
CHUNK_ROWS = 256
CHUNK_BYTES = 2**20
SHORT_CHUNKS = (8, 32, 128)

_INT32_MAX = 2**31 - 1
_64_BIT_TYPES = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))


@jax.jit
def _gather(x: jax.Array, indices: jax.Array) -> jax.Array:
    if x.shape[0] == 0:
        return x
    row_dims = tuple(range(1, x.ndim))
    numbers = lax.GatherDimensionNumbers(offset_dims=row_dims, collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(x, lax.expand_dims(indices, (1,)), numbers, (1, *x.shape[1:]), mode="clip")


@jax.jit
def _row(x: jax.Array, index: jax.Array) -> jax.Array:
    return lax.squeeze(_gather(x, lax.expand_dims(index, (0,))), (0,))


@lru_cache
def _window(size: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return jax.jit(lambda x, start: lax.dynamic_slice_in_dim(x, start, size))


@lru_cache
def _explode(count: int) -> Callable[[jax.Array, jax.Array], list[jax.Array]]:
    def explode(block: jax.Array, start: jax.Array) -> list[jax.Array]:
        few = lax.dynamic_slice_in_dim(block, start, count)
        return [lax.index_in_dim(few, k, keepdims=False) for k in range(count)]

    return jax.jit(explode)


@jax.jit
def _equal_rows(block: jax.Array, row: jax.Array) -> jax.Array:
    if jnp.issubdtype(block.dtype, jax.dtypes.prng_key):
        block = jax.random.key_data(block)
    return jnp.all(block == row, axis=tuple(range(1, block.ndim)))


def chunk_rows(wanted: int, length: int, row_bytes: int) -> int:
    """How many rows of a source to make together: as many as `wanted`, or as fit the byte budget where that is 0.

    A short source gets one of few sizes, so that sources of all lengths share few programs. Where there would be
    fewer rows than an explode makes, they are better made one by one.
    """
    rows = wanted or min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes))
    enough = next((size for size in SHORT_CHUNKS if size >= length), rows)
    return min(rows, enough) if wanted or rows >= EXPLODE_ROWS else 1


def gather(x: jax.Array, indices: NDArray[Any]) -> jax.Array:
    """The rows of `x` at `indices` (1-D int32 or int64, in bounds) as one array."""
    return _call(_gather, x, indices)


def window(x: jax.Array, start: int, size: int) -> jax.Array:
    """Rows `start` to `start + size` of `x` as one new array: a gather of neighbours, four times as fast."""
    return _call(_window(size), x, start)


def row(x: jax.Array, index: "int | jax.Array") -> jax.Array:
    """Row `index` of `x`; a traced index is clamped, as JAX does."""
    return _call(_row, x, index)


def explode(block: jax.Array, start: int, count: int) -> list[jax.Array]:
    """Rows `start` to `start + count` of `block`, each an array of its own."""
    traced = isinstance(block, jax.core.Tracer)
    return _call(_explode(count), block, start if traced else _on_device(start, block.sharding))


def equal_rows(block: jax.Array, row: NDArray[Any]) -> jax.Array:
    """For each row of `block`, whether all its elements equal those of `row`: bool, still on the device."""
    return _call(_equal_rows, block, row)


def _call(program: Callable[..., Any], x: jax.Array, operand: Any) -> Any:
    """Call with leave to transfer a host operand, and in 64 bits where elements or row numbers are, whatever is set.

    Entering a context costs 1-2 µs, a quarter of the whole call, so it is entered only where it matters.
    """
    wide = x.dtype in _64_BIT_TYPES or x.shape[0] > _INT32_MAX
    if not wide and _setting("jax_transfer_guard_host_to_device") in (None, "allow"):
        return program(x, operand)
    with jax.transfer_guard_host_to_device("allow"), _enable_x64(wide or _setting("jax_enable_x64")):
        return program(x, operand)


@lru_cache(maxsize=4096)
def _on_device(value: int, sharding: Sharding) -> jax.Array:
    """An int32 scalar made once and kept: its transfer would cost more than the call it is for."""
    (device,) = sharding.device_set
    with jax.ensure_compile_time_eval(), jax.default_device(device), jax.transfer_guard("allow"):
        return jnp.asarray(np.int32(value))


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _enable_x64(value: bool) -> AbstractContextManager[None]:
    # public under both names: jax.enable_x64 came with JAX 0.8, and jax.experimental.enable_x64 has gone since
    found: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return found.enable_x64(value)
