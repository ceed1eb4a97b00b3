"""The jitted programs: one row, a block of rows, a few rows of a block, which rows of a block equal one.

A block is gathered from the source in the order wanted, then exploded into rows a few at a time at offsets
that live on the device. The gather alone knows the order and the source's length; the explode alone knows
the rows, so it is compiled once for a row type, whatever the source, its length and the order.

The only file that knows how XLA behaves. Nothing here waits for a value.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import experimental, lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from numpy.typing import NDArray

# Rows made by one explode. XLA:CPU runs a program inline up to 8 thunks, or where all its buffers are within 512
# bytes; beyond, it hands thunks to a thread pool and a call costs tens of µs more. µs per row of whole passes:
#   blocks of 256, 8 / 16 / 32 rows at a time            JAX 0.6.2: 1.3 / 5.8 / 3.9   0.10.2: 1.3 / 5.3 / 1.7
#   int32[] in blocks of 128 (512 bytes), 8 / 16 / 32               1.5 / 1.1 / 1.0            1.3 / 1.0 / 0.8
# (by a slice and its parts; behind the barrier of `_explode` it is the same within the noise), and every row made adds
# to the compiling, which is why the tiny ones, chunked so that a block is within 512 bytes, stop at 16. To repeat:
# `python -m lazyrows` with another constant. GPU and TPU: not measured.
EXPLODE_ROWS = 8
EXPLODE_TINY_ROWS = 16
TINY_BYTES = 512

# Rows gathered together by default: enough to make the gather's share small (one of 256 costs about what an explode
# does), few enough bytes that blocks come from memory the allocator has warm. Rows of more than 32 KiB are as fast made
# one by one, which copies them once instead of twice. GPU and TPU: not measured.
CHUNK_ROWS = 256
CHUNK_BYTES = 2**18

# Rows and bytes read together from the host by default. µs per row of whole passes over a memmap in the page cache
# (device_put of each 4 KiB row alone: JAX 0.6.2 46-51, 0.12 34-37), in blocks of
#   64 / 128 / 256 / 512 / 1024 rows of 4 KiB    0.6.2: 6.0 / 4.2 / 3.8 / 3.2 / 2.7   0.12: 6.5 / 4.8 / 4.0 / 3.2 / 2.8
#   128 / 256 / 512 / 1024 / 4096 rows of 16 B          4.0 / 3.2 / 2.9 / 2.5 / 2.5         3.9 / 3.1 / 2.7 / 2.4 / 2.1
#   8 / 16 / 32 / 64 rows of 64 KiB                     41 / 33 / 23 / 19                   49 / 34 / 22 / 18
# To repeat: `lazyrows.iter(..., chunk_size=...)` in `python -m lazyrows FILE.npy`. GPU and TPU: not measured.
READ_ROWS = 128
READ_BYTES = 2**19
# The same in a long pass, of this many reads at least. The first read is waited for, and so is the use of the last: a
# pass over a slow source takes at most an eighth more than the slower of the two.
LONG_READ_ROWS = 1024
LONG_READ_BYTES = 2**22
LONG_READS = 8

_INT32_MAX = 2**31 - 1
_UNGUARDED = (None, "allow")
_config: Any = jax.config
# public under both names: jax.enable_x64 came with JAX 0.8, and jax.experimental.enable_x64 has gone since
_has_enable_x64: Any = jax if hasattr(jax, "enable_x64") else experimental
_enable_x64: Callable[[bool], AbstractContextManager[None]] = _has_enable_x64.enable_x64
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
def _explode(count: int, sharding: "Sharding | None") -> Callable[[jax.Array, jax.Array], list[jax.Array]]:
    # The barrier hides that places differ by constants, so that XLA compiles one kernel for all rows. ms to compile,
    # without it and with it: 16 of int32[], JAX 0.6.2 120 / 141, 0.10.2 251 / 265, 0.12 296 / 82;
    # 8 of float32[64,64], 88 / 134, 653 / 506, 512 / 114. Runs are as fast.
    def explode(block: jax.Array, start: jax.Array) -> list[jax.Array]:
        places = lax.optimization_barrier([start + k for k in range(count)])
        return [lax.dynamic_index_in_dim(block, place, keepdims=False) for place in places]

    return jax.jit(explode, out_shardings=None if sharding is None else [sharding] * count)


@jax.jit
def _equal_rows(block: jax.Array, row: jax.Array) -> jax.Array:
    if jnp.issubdtype(block.dtype, jax.dtypes.prng_key):
        block = jax.random.key_data(block)
    return jnp.all(block == lax.expand_dims(row, (0,)), axis=tuple(range(1, block.ndim)))


class Chunking(NamedTuple):
    """How many rows are gathered together, and how many of those are exploded at a time."""

    size: int
    step: int


@lru_cache
def chunking(wanted: "int | None", length: int, row_bytes: int, align: "int | None") -> Chunking:
    """How to chunk a source of `length` rows: `wanted` together, or as many as fit the byte budget.

    A source that is shorter gets one of few sizes, so that sources of all lengths share few programs. Where the budget
    has room for fewer rows than an explode makes, they are made one by one. `align` is for rows to be read: how many
    are stored together, and so are read together even beyond the budget.
    """
    row_bytes = max(1, row_bytes)
    rows = wanted or (_rows_to_read(row_bytes, align) if align else _rows_to_gather(row_bytes))
    return _exploded(min(rows, _covering(length)), row_bytes)


def lengthened(chunking: Chunking, length: int, row_bytes: int) -> Chunking:
    """How to chunk a pass over `length` rows that are read: as otherwise, but several such chunks at a time if long."""
    size, row_bytes = chunking.size, max(1, row_bytes)
    times = min(LONG_READ_ROWS // size, LONG_READ_BYTES // (size * row_bytes))
    return _exploded(times * size, row_bytes) if times > 1 and length >= LONG_READS * times * size else chunking


def _exploded(size: int, row_bytes: int) -> Chunking:
    tiny = size * row_bytes <= TINY_BYTES
    return Chunking(size, min(size, EXPLODE_TINY_ROWS if tiny else EXPLODE_ROWS))


def _covering(length: int) -> int:
    """The least of 8, 32, 128, 512 ... that is no less."""
    size = EXPLODE_ROWS
    while size < length:
        size *= 4
    return size


def _rows_to_read(row_bytes: int, align: int) -> int:
    rows = min(READ_ROWS, READ_BYTES // row_bytes)
    return max(1, align, rows // align * align)


def _rows_to_gather(row_bytes: int) -> int:
    tiny = TINY_BYTES // row_bytes
    rows = min(CHUNK_ROWS, tiny if tiny >= 2 * EXPLODE_TINY_ROWS else CHUNK_BYTES // row_bytes)
    return rows if rows >= EXPLODE_ROWS else 1


def gather(x: jax.Array, indices: NDArray[Any]) -> jax.Array:
    """The rows of `x` at `indices` (1-D int32 or int64, in bounds) as one array."""
    return _caller(_gather, x)(indices)


def indexer(x: jax.Array) -> "Callable[[int | jax.Array], jax.Array]":
    """What makes row `i` of `x`, given `i`; a traced index is clamped, as JAX does.

    The first few positions are taken from those kept on the device, half the time of one that has to be transferred.
    """
    call = _caller(_row, x)
    if not _is_narrow(x):
        return call
    kept = _device_scalars(_whereabouts(x.sharding)[0])
    return lambda index: call(kept[index] if type(index) is int and index < EXPLODE_TINY_ROWS else index)


def exploder(block: jax.Array, count: int) -> Callable[[int], list[jax.Array]]:
    """What makes rows `start` to `start + count` of `block`, each an array of its own, given `start`."""
    where, sharding = _whereabouts(block.sharding)
    program, starts = _explode(count, sharding), _device_scalars(where)
    call = partial(program, block) if _is_narrow(block) else _caller(program, block)
    return lambda start: call(starts[start])


def equal_rows(block: jax.Array, row: NDArray[Any]) -> jax.Array:
    """For each row of `block`, whether all its elements equal those of `row`: bool, still on the device."""
    return _caller(_equal_rows, block)(row)


def check_not_deleted(x: jax.Array) -> None:
    """Raise what JAX does of a deleted or donated array; before 0.12, compiled programs raise a ValueError of XLA's."""
    if x.is_deleted():
        raise RuntimeError(f"Array has been deleted with shape={x.dtype.name}{list(x.shape)}.")


def _is_narrow(x: jax.Array) -> bool:
    return x.dtype not in _64_BIT_TYPES and x.shape[0] <= _INT32_MAX


def _caller(program: Callable[..., Any], x: jax.Array) -> Callable[[Any], Any]:
    """Call with leave to transfer an operand that is on the host, and with 64-bit types for such elements or positions.

    Entering a context costs 1-2 µs, a quarter of the whole call, so it is entered only where it matters.
    """
    narrow = _is_narrow(x)

    def call(operand: Any) -> Any:
        try:
            if narrow and _config.jax_transfer_guard_host_to_device in _UNGUARDED:
                return program(x, operand)
            with jax.transfer_guard_host_to_device("allow"), _enable_x64(not narrow or _config.jax_enable_x64):
                return program(x, operand)
        except ValueError:
            check_not_deleted(x)
            raise

    return call


@lru_cache
def _whereabouts(sharding: Sharding) -> "tuple[Any, Sharding | None]":
    """Where scalars for a program over an array go, and what its rows have, where it is not for XLA to say."""
    if not isinstance(sharding, NamedSharding) or len(sharding.device_set) == 1:
        (device,) = sharding.device_set
        return device, None
    return NamedSharding(sharding.mesh, PartitionSpec()), row_sharding(sharding)


def row_sharding(sharding: NamedSharding) -> NamedSharding:
    """The sharding of an array without its leading axis."""
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]), memory_kind=sharding.memory_kind)


@lru_cache
def _device_scalars(where: Any) -> "_DeviceScalars":
    return _DeviceScalars(where)


class _DeviceScalars(dict[int, jax.Array]):
    """int32 scalars on a device or mesh, made once and kept: a transfer would cost more than the call it is for.

    They are the starts in a chunk and the first few positions. On a device they are uncommitted and of weak type, as
    Python's integers are, so that a program is compiled once for both.
    """

    def __init__(self, where: Any) -> None:
        super().__init__()
        self._where = where

    def __missing__(self, value: int) -> jax.Array:
        with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"), _enable_x64(False):
            return self.setdefault(value, self._make(value))

    def _make(self, value: int) -> jax.Array:
        if isinstance(self._where, Sharding):
            return jax.make_array_from_callback((), self._where, lambda _: np.asarray(value, np.int32))
        with jax.default_device(self._where):
            return jnp.asarray(value)
