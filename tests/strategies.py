"""What the properties draw from: arrays of every dtype, trees of them, indices, options; and what a row must equal.

Dtypes, row shapes and lengths come from short lists, because every new combination is compiled. Values come from a
seed and few numbers, so that rows repeat and the special ones (NaN, infinities, -0.0, the extremes) come often.
"""

import warnings
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

# 8 rows are exploded at a time, 256 gathered together: lengths about those, and some far from both
LENGTHS = (0, 1, 2, 9, 40)
LONG = (300,)

SMALL_DTYPES = ("bool", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOAT_DTYPES = (
    *("float16", "bfloat16", "float32", "complex64", "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3fn"),
    *("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
WIDE_DTYPES = ("int64", "uint64", "float64", "complex128")
KEY_IMPLS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}

# every dtype once, and every row shape: 0-d rows, zero-width, one element, odd sizes, two axes
_SHAPES = ((), (3,), (2, 2), (0,), (1,), (2, 0))
ALL_SPECS = (
    *((dtype, _SHAPES[k % 3]) for k, dtype in enumerate(SMALL_DTYPES + FLOAT_DTYPES)),
    *(("float32", shape) for shape in _SHAPES),
)
WIDE_SPECS = (("int64", ()), ("uint64", (3,)), ("float64", (2, 2)), ("complex128", (1,)))
# enough kinds to go through every path together with any length, order and option
SPECS = (("float32", (3,)), ("int32", ()), ("bfloat16", (2, 2)), ("int4", (3,)), ("complex64", (0,)))


class Point(NamedTuple):
    """A pytree that is neither a dict nor a plain tuple."""

    x: Any
    y: Any


def x64(enabled: bool = True) -> AbstractContextManager[None]:
    """64-bit types on or off, by whichever of its two public names this JAX has."""
    return (jax if hasattr(jax, "enable_x64") else jax.experimental).enable_x64(enabled)


def is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


# ---- arrays


def host_values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A NumPy array of few distinct values, so that rows repeat; the extremes and special values are among them."""
    pick = np.random.default_rng(seed).integers(0, 8, shape)
    palette = np.array([0, 1, 2, 3, 1, 0, 1, 2], np.int64)
    target = jnp.dtype(dtype)
    if dtype == "bool":
        return palette[pick] % 2 == 1
    if jnp.issubdtype(target, np.integer):
        limits = jnp.iinfo(target)
        few = [0, 1, 2, 3, int(limits.min), int(limits.max), 1, int(limits.max) - 1]
        return np.array(few, object).astype(target)[pick]
    few = np.array([0.0, -0.0, 1.0, -1.5, 2.0, np.nan, np.inf, -np.inf])
    if jnp.issubdtype(target, np.complexfloating):
        few = np.stack([few, few[[1, 2, 3, 0, 5, 4, 7, 6]]], axis=-1).view(np.complex128)[:, 0]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return few.astype(target)[pick]


def lengths(*, long: bool = True) -> st.SearchStrategy[int]:
    """How many rows: mostly few, now and then about a chunk's worth and more."""
    return st.sampled_from(LENGTHS + LONG if long else LENGTHS)


SEEDS = st.integers(0, 2**16)


@st.composite
def plain_arrays(draw: st.DrawFn, length: int, specs: Any = SPECS) -> jax.Array:
    """Arrays made of NumPy values: committed or not, on the default device or another."""
    dtype, row_shape = draw(st.sampled_from(specs))
    values = host_values(dtype, (length, *row_shape), draw(SEEDS))
    with x64(dtype in WIDE_DTYPES or jax.config.jax_enable_x64):
        return draw(placed(values))


@st.composite
def placed(draw: st.DrawFn, values: np.ndarray) -> jax.Array:
    """These values on the default device or another, committed to it or not."""
    where = draw(st.sampled_from(("uncommitted", "uncommitted", "committed", "committed elsewhere", "made elsewhere")))
    here, elsewhere, *_ = jax.devices()
    if where == "uncommitted":
        return jax.device_put(values)
    if where == "made elsewhere":
        with jax.default_device(elsewhere):
            return jax.device_put(values)
    return jax.device_put(values, here if where == "committed" else elsewhere)


@st.composite
def weak_arrays(draw: st.DrawFn, length: int) -> jax.Array:
    """Arrays of weak type, as arithmetic with Python scalars gives them."""
    row_shape = draw(st.sampled_from(((), (3,))))
    mask = host_values("bool", (length, *row_shape), draw(SEEDS))
    low, high = draw(st.sampled_from(((1, 2), (0.5, -1.5))))
    return jnp.where(mask, low, high)


@st.composite
def key_arrays(draw: st.DrawFn, length: int) -> jax.Array:
    """Typed PRNG keys, one to a row or two."""
    impl, row_shape = draw(st.sampled_from((("threefry2x32", ()), ("rbg", (2,)))))
    data = host_values("uint32", (length, *row_shape, KEY_IMPLS[impl]), draw(SEEDS))
    return jax.random.wrap_key_data(draw(placed(data)), impl=impl)


def strong_arrays(length: int) -> st.SearchStrategy[jax.Array]:
    """Device arrays of `length` rows: of strong type, and of keys."""
    plain = plain_arrays(length)
    return st.one_of(plain, plain, plain, key_arrays(length))


def arrays(length: int) -> st.SearchStrategy[jax.Array]:
    """Device arrays of `length` rows: of strong and of weak type, and of keys."""
    strong = strong_arrays(length)
    return st.one_of(strong, strong, strong, weak_arrays(length))


@st.composite
def host_arrays(draw: st.DrawFn, length: int, specs: Any = SPECS + WIDE_SPECS) -> np.ndarray:
    """NumPy arrays, 64-bit ones too: of either byte order, contiguous or not, read-only or not."""
    dtype, row_shape = draw(st.sampled_from(specs))
    values = host_values(dtype, (2 * length, *row_shape), draw(SEEDS))
    layout = draw(st.sampled_from(("plain", "swapped", "strided", "reversed", "Fortran", "read-only")))
    values = values[::2] if layout == "strided" else values[:length]
    if layout == "swapped" and values.dtype.isnative and values.dtype.kind in "iufc" and values.dtype.itemsize > 1:
        return values.astype(values.dtype.newbyteorder())
    if layout == "Fortran":
        return np.asfortranarray(values)
    values.flags.writeable = layout != "read-only"
    return values[::-1] if layout == "reversed" else values


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Pytrees with at least one leaf: dict, tuple, list, named tuple, nested, with None among the leaves."""
    return st.one_of(
        st.builds(lambda a, b: {"image": a, "label": b}, leaves, leaves),
        st.builds(lambda a, b: (a, [b, None]), leaves, leaves),
        st.builds(Point, leaves, st.builds(lambda a: {"deep": (a,)}, leaves)),
        st.builds(lambda a: {"only": a, "none": None}, leaves),
    )


@st.composite
def device_sources(draw: st.DrawFn, long: bool = True) -> Any:
    """An array or a pytree of arrays with one leading length, all on devices."""
    length = draw(lengths(long=long))
    return draw(st.one_of(arrays(length), arrays(length), trees(arrays(length))))


@st.composite
def sources(draw: st.DrawFn, long: bool = True) -> Any:
    """Anything with rows: arrays on devices, NumPy arrays, and pytrees of either and both."""
    length = draw(lengths(long=long))
    leaves = st.one_of(arrays(length), arrays(length), host_arrays(length, SPECS))
    return draw(st.one_of(leaves, leaves, trees(leaves)))


# ---- indices

HUGE = st.sampled_from((10**20, -(10**20), 2**31, -(2**31), 2**63))


def slices(length: int) -> st.SearchStrategy[slice]:
    """Slices of every kind: open, clamped, out of range, backwards; never of step 0."""
    bounds = st.one_of(st.none(), st.integers(-length - 3, length + 3), st.integers(-length - 3, length + 3), HUGE)
    steps = st.one_of(st.none(), st.integers(-4, 4).filter(bool), st.integers(-4, 4).filter(bool), HUGE)
    return st.builds(slice, bounds, bounds, steps)


@st.composite
def integer_lists(draw: st.DrawFn, length: int) -> Any:
    """Lists and arrays of integers in range, in any order, with repeats and negative ones; in any integer dtype."""
    values = draw(st.lists(st.integers(-length, length - 1), max_size=12)) if length else []
    kind = draw(st.sampled_from(("list", "NumPy list", "int8", "int16", "int32", "int64", "uint8", "uint64")))
    if kind == "list":
        return values
    if kind == "NumPy list":
        return [np.int32(value) for value in values]
    if kind.startswith("u"):
        values = [value % length for value in values]
    limits = np.iinfo(kind)
    return np.array([value for value in values if limits.min <= value <= limits.max], kind)


@st.composite
def masks(draw: st.DrawFn, length: int) -> Any:
    """Boolean masks of exactly this length: lists and arrays."""
    bits = draw(st.integers(0, 2**length - 1))
    values = [bool(bits >> k & 1) for k in range(length)]
    return values if draw(st.booleans()) else np.array(values, bool)


def selections(length: int) -> st.SearchStrategy[Any]:
    """Whatever makes a view of a view: slices, lists and arrays of integers, masks."""
    return st.one_of(slices(length), slices(length), integer_lists(length), masks(length))


def device_selections(length: int) -> st.SearchStrategy[jax.Array]:
    """Integer arrays and masks that are jax arrays."""
    entries = st.one_of(integer_lists(length), masks(length)).map(np.asarray)
    return entries.map(lambda index: jnp.asarray(index, bool if index.dtype == bool else np.int32))


def select(values: list[Any], index: Any) -> list[Any]:
    """What a list gives for an index that `selections` draws: the model of every view of a view."""
    if isinstance(index, slice):
        return values[index]
    entries = np.asarray(index)
    if entries.dtype == bool:
        return [value for value, wanted in zip(values, entries, strict=True) if wanted]
    return [values[int(entry)] for entry in entries]


# ---- options

OPTIONS = st.fixed_dictionaries(
    {}, optional={"chunk_size": st.sampled_from((None, 1, 5)), "prefetch": st.sampled_from((None, 0, 3))}
)


# ---- what a row must equal


class Portrait(NamedTuple):
    """All that is promised of one leaf of a row: equal portraits mean equally faithful rows."""

    dtype: Any
    shape: tuple[int, ...]
    weak_type: bool
    committed: bool
    devices: frozenset[jax.Device]
    memory_kind: str | None
    bits: bytes


def portrait(row: Any) -> tuple[Any, list[Portrait]]:
    """A row as something to compare: its tree, and for each leaf all that is promised of it."""
    leaves, treedef = jax.tree.flatten(row)
    return treedef, [_leaf_portrait(leaf) for leaf in leaves]


def _leaf_portrait(x: jax.Array) -> Portrait:
    assert isinstance(x, jax.Array)
    kind, weak = x.sharding.memory_kind, getattr(x, "weak_type", False)
    return Portrait(x.dtype, x.shape, weak, x.committed, frozenset(x.devices()), kind, bits(host(x)))


def host(x: Any) -> np.ndarray:
    """The value of an array, or of a key array its words, in NumPy."""
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


def bits(value: np.ndarray) -> bytes:
    """A value to the bit, -0.0 and all, except that a NaN is a NaN: XLA keeps no payload of small floats."""
    parts = np.stack([value.real, value.imag], axis=-1) if value.dtype.kind == "c" else np.array(value)
    nan = parts != parts
    if nan.any():
        parts[nan] = np.array(np.nan).astype(parts.dtype)
    return parts.tobytes()


def model(source: Any) -> list[tuple[Any, list[Portrait]]]:
    """The portraits of `[x[i] for i in range(len(x))]`, worked out on the host: JAX would compile for every length."""
    leaves, treedef = jax.tree.flatten(source)
    columns = [_model_leaf(leaf) for leaf in leaves]
    return [(treedef, list(row)) for row in zip(*columns, strict=True)]


def _model_leaf(x: Any) -> list[Portrait]:
    """A NumPy array's rows are what `jnp.asarray` makes of them; an uncommitted array's go to the default device."""
    default = jax.config.jax_default_device or jax.devices()[0]
    if isinstance(x, np.ndarray):
        x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype.newbyteorder("=")))
        weak, committed, memory_kind = False, False, default.default_memory().kind
    else:
        weak, committed, memory_kind = getattr(x, "weak_type", False), x.committed, x.sharding.memory_kind
    devices = frozenset(x.devices() if committed else {default})
    return [Portrait(x.dtype, x.shape[1:], weak, committed, devices, memory_kind, bits(r)) for r in host(x)]


def jax_rows(source: Any) -> list[Any]:
    """JAX's own rows, each indexed for itself."""
    length = len(jax.tree.leaves(source)[0])
    return [jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), source) for i in range(length)]


def equals(stacked: Any, value: Any) -> list[bool]:
    """For each row of stacked rows, whether every element of every leaf equals that of `value`."""
    columns, wanted = ([host(leaf) for leaf in jax.tree.leaves(tree)] for tree in (stacked, value))
    each = ([np.array_equal(row, leaf) for row in column] for column, leaf in zip(columns, wanted, strict=True))
    return [all(row) for row in zip(*each, strict=True)]


def assert_same_row(actual: Any, expected: tuple[Any, list[Portrait]]) -> None:
    assert portrait(actual) == expected


def assert_same_rows(actual: Any, expected: list[tuple[Any, list[Portrait]]]) -> None:
    """One by one the same rows, and as many."""
    assert [portrait(row) for row in actual] == expected
