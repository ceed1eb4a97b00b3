"""Every promise about a view of device arrays, as a property: it behaves as the list of the rows that JAX gives."""

import copy
import operator
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import strategies as draw_from
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import OPTIONS, assert_same_row, assert_same_rows, bits, host, model, portrait, x64

import lazyrows

some, few = settings(max_examples=30), settings(max_examples=12)


class Case(NamedTuple):
    """A view, its source, and the portraits of the rows it stands for."""

    view: lazyrows.RowView
    source: object
    expected: list

    def __repr__(self):
        return f"{self.view!r} of {jax.tree.map(type, self.source)}"


@st.composite
def views(draw, sources=None):
    source = draw(draw_from.sources() if sources is None else sources)
    return Case(lazyrows.iter(source, **draw(OPTIONS)), source, model(source))


@st.composite
def derived(draw, sources=None):
    """A view of a view of a view."""
    view, source, expected = draw(views(sources))
    for _ in range(draw(st.integers(0, 3))):
        index = draw(draw_from.selections(len(expected)))
        view, expected = view[index], draw_from.select(expected, index)
    return Case(view, source, expected)


short_arrays = st.sampled_from((1, 2, 9)).flatmap(draw_from.arrays)
short_sources = draw_from.device_sources(long=False)


# ---- a sequence of faithful rows


@few
@given(short_sources)
def test_the_model_is_what_jax_gives(source):
    assert_same_rows(draw_from.jax_rows(source), model(source))


@some
@given(views())
def test_a_view_has_the_rows_of_its_source(drawn):
    view, _, expected = drawn
    assert len(view) == len(expected)
    assert bool(view) == bool(expected)
    assert_same_rows(view, expected)


@some
@given(derived())
def test_a_view_of_a_view_has_the_rows_of_a_list_of_a_list(drawn):
    view, _, expected = drawn
    assert isinstance(view, lazyrows.RowView)
    assert len(view) == len(expected)
    assert_same_rows(view, expected)


@some
@given(derived())
def test_reversed_gives_the_same_rows_backwards(drawn):
    view, _, expected = drawn
    assert_same_rows(reversed(view), expected[::-1])
    assert_same_rows(view[::-1], expected[::-1])


@some
@given(derived(), st.data())
def test_any_row_by_any_integer_in_any_order(drawn, data):
    view, _, expected = drawn
    if not expected:
        return
    as_index = st.sampled_from((int, np.int8, np.int64, np.uint16, lambda i: np.array(i), lambda i: jnp.asarray(i)))
    for place in data.draw(st.lists(st.integers(0, min(len(expected), 120) - 1), max_size=12)):
        assert_same_row(view[data.draw(as_index)(place)], expected[place])
        assert_same_row(view[place - len(expected)], expected[place])


@few
@given(views(), st.data())
def test_jax_arrays_index_as_numpy_ones_do(drawn, data):
    view, _, expected = drawn
    index = data.draw(draw_from.device_selections(len(expected)))
    assert_same_rows(view[index], draw_from.select(expected, np.asarray(index)))


@few
@given(views(), st.integers(0, 3), st.booleans())
def test_an_index_out_of_range_is_refused(drawn, beyond, negative):
    view, _, expected = drawn
    index = -len(expected) - 1 - beyond if negative else len(expected) + beyond
    with pytest.raises(IndexError, match=rf"{index} is out of range for {len(expected)} rows"):
        view[index]


@some
@given(st.data())
def test_64_bit_rows_are_faithful_where_64_bit_types_are_on(data):
    with x64():
        length = data.draw(draw_from.lengths(long=False))
        leaves = st.one_of(
            draw_from.plain_arrays(length, draw_from.WIDE_SPECS), draw_from.host_arrays(length, draw_from.WIDE_SPECS)
        )
        view, _, expected = data.draw(derived(st.one_of(leaves, draw_from.trees(leaves))))
        assert_same_rows(view, expected)
        assert_same_rows([view[place] for place in range(len(view))], expected)


@few
@given(st.sampled_from((2, 9)).flatmap(lambda n: draw_from.plain_arrays(n, draw_from.WIDE_SPECS)))
def test_a_64_bit_array_keeps_its_rows_where_64_bit_types_are_off(x):
    view = lazyrows.iter(x)
    assert view.element_spec.dtype == x.dtype
    assert_same_rows(view, model(x))
    assert_same_rows([view[place] for place in range(len(view))], model(x))


@few
@given(st.sampled_from((2, 9)).flatmap(lambda n: draw_from.host_arrays(n, draw_from.WIDE_SPECS)))
def test_rows_of_a_host_source_have_the_types_of_the_moment(x):
    view = lazyrows.iter(x)
    for enabled in (False, True, False):
        with x64(enabled):
            assert view.element_spec.dtype == view[0].dtype == jax.dtypes.canonicalize_dtype(x.dtype.newbyteorder("="))
            assert_same_rows(view, model(x))
            assert_same_rows([view[place] for place in range(len(view))], model(x))


@few
@given(st.one_of(draw_from.arrays(9), draw_from.host_arrays(9, draw_from.SPECS)), st.data())
def test_rows_go_where_the_default_device_is_when_they_are_made(source, data):
    view = lazyrows.iter(source)
    for _ in range(4):
        device = data.draw(st.sampled_from((None, jax.devices()[1])))
        with jax.default_device(device):
            assert_same_row(view[1], model(source)[1])
            assert_same_rows(view[:2], model(source)[:2])


@few
@given(draw_from.sources(long=False), st.sampled_from(("device", "sharding")), OPTIONS)
def test_rows_go_to_the_device_asked_for(source, kind, options):
    device = jax.devices()[1]
    where = device if kind == "device" else jax.sharding.SingleDeviceSharding(device)
    there = [(tree, [leaf._replace(committed=True, devices={device}) for leaf in row]) for tree, row in model(source)]
    view = lazyrows.iter(source, device=where, **options)
    assert_same_rows(view, there)
    assert_same_rows([view[place] for place in range(len(view))], there)
    assert {leaf.sharding.device_set == {device} for leaf in jax.tree.leaves(view.element_spec)} == {True}


KINDS = {f"{dtype}{list(shape)}": (dtype, shape) for dtype, shape in draw_from.ALL_SPECS}


def of_every_kind():
    for name, (dtype, shape) in KINDS.items():
        values = draw_from.host_values(dtype, (9, *shape), seed=1)
        yield pytest.param(jax.device_put(values, jax.devices()[0]), id=name)
        yield pytest.param(values, id=f"numpy {name}")
    for impl, words in draw_from.KEY_IMPLS.items():
        data = draw_from.host_values("uint32", (9, words), seed=1)
        yield pytest.param(jax.random.wrap_key_data(data, impl=impl), id=impl)


@pytest.mark.parametrize("x", list(of_every_kind()))
def test_arrays_of_every_dtype_and_row_shape_have_faithful_rows(x):
    view, expected = lazyrows.iter(x), model(x)
    assert_same_rows(view, expected)
    assert_same_rows([view[place] for place in range(9)], expected)
    assert_same_rows(view[[3, 8, 3]], [expected[3], expected[8], expected[3]])
    assert b"".join(row[0].bits for _, row in expected) == bits(host(view.stack()))
    assert view.count(view[1]) == sum(draw_from.equals(view.stack(), view[1]))


# ---- what a view says of itself


@some
@given(derived())
def test_element_spec_describes_every_row(drawn):
    view, source, _ = drawn
    assert jax.tree.structure(view.element_spec) == jax.tree.structure(source)
    for row in view[:2]:
        for spec, leaf in zip(jax.tree.leaves(view.element_spec), jax.tree.leaves(row), strict=True):
            assert (spec.dtype, spec.shape) == (leaf.dtype, leaf.shape)
            assert spec.weak_type == getattr(leaf, "weak_type", False)
            assert spec.sharding is None or spec.sharding.device_set == leaf.devices()


@few
@given(short_arrays)
def test_element_spec_of_a_device_array_has_its_sharding(x):
    assert lazyrows.iter(x).element_spec.sharding is not None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (np.zeros((10000, 128), np.float32), "RowView(10000 rows of float32[128])"),
        (np.zeros((3, 2, 0), np.int8), "RowView(3 rows of int8[2,0])"),
        (jnp.zeros(0, bool), "RowView(0 rows of bool[])"),
        (np.zeros((2, 2)), "RowView(2 rows of float32[2])"),
        (jax.random.split(jax.random.key(0), 4), "RowView(4 rows of key<fry>[])"),
        ({"a": jnp.zeros((2, 3)), "b": np.zeros(2, np.int32)}, "RowView(2 rows of {'a': float32[3], 'b': int32[]})"),
    ],
)
def test_repr_says_how_many_rows_of_what(source, text):
    assert repr(lazyrows.iter(source)) == text


@few
@given(views())
def test_repr_counts_the_rows_of_a_slice(drawn):
    view, _, expected = drawn
    assert repr(view[1:]).startswith(f"RowView({len(expected[1:])} row")


def test_a_view_is_a_generic_sequence():
    view = lazyrows.iter(jnp.arange(3))
    assert isinstance(view, Sequence)
    assert lazyrows.RowView[jax.Array].__origin__ is lazyrows.RowView
    assert lazyrows.RowView.__module__.startswith("lazyrows")


def test_a_view_matches_sequence_patterns():
    match lazyrows.iter(jnp.arange(4)):
        case [first, second, *others]:
            assert [int(first), int(second), [int(row) for row in others]] == [0, 1, [2, 3]]
    match lazyrows.iter(jnp.zeros((0, 2))):
        case []:
            matched = True
        case _:
            matched = False
    assert matched


# ---- iterators


@some
@given(derived())
def test_an_iterator_counts_down_and_stays_exhausted(drawn):
    view, _, expected = drawn
    rows = iter(view)
    assert iter(rows) is rows
    for left in range(len(expected), 0, -1):
        assert operator.length_hint(rows) == left
        next(rows)
    assert operator.length_hint(rows) == 0
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(rows)


@few
@given(derived(), st.data())
def test_iterators_of_one_view_are_independent(drawn, data):
    view, _, expected = drawn
    pairs = [(iter(view), iter(expected)), (reversed(view), reversed(expected)), (iter(view), iter(expected))]
    for chosen in data.draw(st.lists(st.integers(0, 2), max_size=30)):
        rows, wanted = pairs[chosen]
        row, answer = next(rows, "end"), next(wanted, "end")
        assert row == "end" if answer == "end" else portrait(row) == answer


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_iterator_is_neither_copied_nor_pickled(copied):
    with pytest.raises(TypeError, match="iterator"):
        copied(iter(lazyrows.iter(jnp.arange(3))))


# ---- all rows at once


@some
@given(derived())
def test_stack_is_the_rows_stacked(drawn):
    view, source, expected = drawn
    stacked = view.stack()
    treedef, columns = portrait(stacked)
    assert treedef == jax.tree.structure(source)
    for place, (column, leaf) in enumerate(zip(columns, jax.tree.leaves(source), strict=True)):
        assert column.shape == (len(expected), *leaf.shape[1:])
        assert column.bits == b"".join(row[place].bits for _, row in expected)
        for _, row in expected:
            assert column._replace(shape=row[place].shape, bits=row[place].bits) == row[place]


@some
@given(views(st.one_of(short_arrays, draw_from.lengths().flatmap(draw_from.host_arrays))))
def test_asarray_is_stack(drawn):
    view, source, _ = drawn
    treedef, (leaf,) = portrait(view.stack())
    weak_type = getattr(jnp.asarray(view), "weak_type", False)  # newer JAX drops it here, whatever it is given
    assert portrait(jnp.asarray(view)) == (treedef, [leaf._replace(weak_type=weak_type)])
    if not draw_from.is_key(source):
        array = np.asarray(view)
        assert array.dtype == view.element_spec.dtype
        assert bits(array) == bits(host(view.stack()))


def test_asarray_converts_and_copies_as_asked():
    view = lazyrows.iter(jnp.arange(4))
    assert np.asarray(view, np.float64).dtype == np.float64
    assert np.array(view, copy=True).flags.writeable
    with pytest.raises(ValueError, match="copy"):
        np.asarray(view, copy=False)


@pytest.mark.parametrize("asarray", [np.asarray, jnp.asarray])
def test_asarray_of_rows_that_are_trees_points_to_stack(asarray):
    with pytest.raises(TypeError, match=r"stack\(\)"):
        asarray(lazyrows.iter({"a": jnp.arange(3)}))


# ---- searching


@some
@given(views(), st.data())
def test_searching_compares_whole_rows(drawn, data):
    view, _, expected = drawn
    if not expected:
        return
    value = view[data.draw(st.integers(0, min(len(expected) - 1, 5)))]
    equal = draw_from.equals(view.stack(), value)
    bounds = st.integers(-len(equal) - 2, len(equal) + 2)
    start, stop = data.draw(bounds), data.draw(st.one_of(st.none(), bounds))
    assert (value in view) == any(equal)
    assert view.count(value) == sum(equal)
    assert outcome(view.index, value) == outcome(equal.index, True)
    assert outcome(view.index, value, start) == outcome(equal.index, True, start)
    if stop is not None:
        assert outcome(view.index, value, start, stop) == outcome(equal.index, True, start, stop)


def outcome(call, *arguments):
    with suppress(ValueError):
        return call(*arguments)
    return "ValueError"


@few
@given(derived())
def test_nothing_but_a_row_is_among_the_rows(drawn):
    view, _, _ = drawn
    for value in (None, "a", object(), np.zeros((7, 7)), [], {"no": 1}, np.array(["a"], object)):
        assert value not in view
        assert view.count(value) == 0
        with pytest.raises(ValueError, match="not among the rows"):
            view.index(value)


@pytest.mark.parametrize(
    ("value", "positions"),
    [(2, [2, 5]), (2.0, [2, 5]), (np.int8(2), [2, 5]), (jnp.asarray(2), [2, 5]), (2.5, []), (10**30, []), ([2], [])],
)
def test_values_compare_as_numbers_do(value, positions):
    view = lazyrows.iter(jnp.asarray([0, 1, 2, 3, 4, 2]))
    assert view.count(value) == len(positions)
    assert [view[place:].index(value) for place in positions] == [0] * len(positions)
    assert (value in view) == bool(positions)


# ---- pickling and copying


def assert_copies(copied, view):
    """The same rows in value and type; where they are, and whether they are committed, is for JAX to say."""
    assert len(copied) == len(view)
    for row, original in zip(copied, view, strict=True):
        (tree, leaves), (original_tree, originals) = portrait(row), portrait(original)
        assert tree == original_tree
        assert [(leaf[:3], leaf.bits) for leaf in leaves] == [(leaf[:3], leaf.bits) for leaf in originals]


@few
@given(derived(short_sources))
def test_copies_keep_values_and_types(drawn):
    view, _, _ = drawn
    assert_copies(copy.copy(view), view)
    assert_copies(copy.deepcopy(view), view)


# JAX 0.6 unpickles an array of weak type as one that says so, but that `jit` may take for a strong one
@few
@given(derived(st.sampled_from((1, 9)).flatmap(lambda n: draw_from.trees(draw_from.strong_arrays(n)))))
def test_pickles_keep_values_and_types(drawn):
    view, _, _ = drawn
    assert_copies(pickle.loads(pickle.dumps(view)), view)


def test_a_pickle_holds_no_cache():
    view = lazyrows.iter(np.arange(300), chunk_size=64)
    before = pickle.dumps(view)
    iterator = iter(view)
    for place in (0, 1, 2):
        view[place], next(iterator)
    assert pickle.dumps(view) == before


# ---- a pytree


@few
@given(derived())
def test_the_leaves_of_a_view_are_the_arrays_of_its_source(drawn):
    view, source, expected = drawn
    leaves, treedef = jax.tree.flatten(view)
    assert list(map(id, leaves)) == list(map(id, jax.tree.leaves(source)))
    assert_same_rows(jax.tree.unflatten(treedef, leaves), expected)
    assert_same_rows(jax.tree.map(lambda x: x, view), expected)


@few
@given(derived(short_sources))
def test_a_view_may_be_put_elsewhere_and_waited_for(drawn):
    view, _, expected = drawn
    device = jax.devices()[1]
    moved = jax.block_until_ready(jax.device_put(view, device))
    assert isinstance(moved, lazyrows.RowView)
    wanted = [(tree, [leaf._replace(committed=True, devices={device}) for leaf in row]) for tree, row in expected]
    assert_same_rows(moved, wanted)


@st.composite
def short_views(draw):
    """Derived views of few rows whose leaves are all on one device, so that one program can take them all."""
    length = draw(st.sampled_from((1, 2, 9)))
    specs = st.sampled_from((("float32", (3,)), ("int32", ()), ("bfloat16", (0,)), ("int4", (2, 2))))
    leaf = st.builds(
        lambda spec, seed: jnp.asarray(draw_from.host_values(spec[0], (length, *spec[1]), seed)), specs, draw_from.SEEDS
    )
    keys = draw_from.SEEDS.map(lambda seed: jax.random.split(jax.random.key(seed), length))
    return draw(derived(st.one_of(leaf, draw_from.trees(st.one_of(leaf, keys)))))


@few
@given(short_views())
def test_a_view_may_be_an_argument_of_a_jitted_function(drawn):
    view, _, expected = drawn
    assert_same_rows(jax.jit(list)(view), expected)
    assert_same_rows(jax.jit(lambda rows: list(reversed(rows)))(view), expected[::-1])
    assert portrait(jax.jit(lambda rows: rows.stack())(view)) == portrait(view.stack())
    assert_same_rows(jax.jit(lambda rows: rows[::-1])(view), expected[::-1])


@few
@given(short_views())
def test_a_view_may_be_closed_over_by_a_jitted_function(drawn):
    view, _, expected = drawn
    assert_same_rows(jax.jit(lambda: list(view))(), expected)
    assert_same_rows(jax.jit(lambda: list(reversed(view)))(), expected[::-1])
    assert portrait(jax.jit(view.stack)()) == portrait(view.stack())


def test_views_made_alike_are_traced_once():
    traced = []

    @jax.jit
    def first(rows):
        traced.append(rows)
        return rows[0]

    for seed in range(3):
        x = jnp.arange(12).reshape(6, 2) + seed
        assert first(lazyrows.iter(x)[::-2]).tolist() == x[5].tolist()
        assert first(lazyrows.iter(x)[[3, 1]]).tolist() == x[3].tolist()
    assert len(traced) == 2


# ---- under transformations


@few
@given(short_views(), st.integers(-12, 12))
def test_a_traced_index_is_clamped(drawn, index):
    view, _, expected = drawn
    if not expected:
        return
    place = min(max(index + len(expected) if index < 0 else index, 0), len(expected) - 1)
    assert_same_row(jax.jit(view.__getitem__)(jnp.int32(index)), expected[place])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int32, jnp.uint32])
def test_a_traced_index_of_any_integer_type_reaches_every_row(dtype):
    x = jnp.arange(300)
    rows, get = lazyrows.iter(x)[::-1], jax.jit(lambda view, index: view[index])
    for place in (0, 1, 100, 127):
        assert int(get(rows, dtype(place))) == 299 - place


def test_a_traced_index_of_no_rows_is_refused():
    with pytest.raises(IndexError, match="0 rows"):
        jax.jit(lazyrows.iter(jnp.zeros((0, 2))).__getitem__)(0)


@pytest.mark.parametrize("index", [jnp.array([1, 2]), jnp.float32(1), jnp.array(True)])
def test_a_traced_index_that_is_not_one_integer_is_refused(index):
    with pytest.raises(TypeError, match="traced index"):
        jax.jit(lazyrows.iter(jnp.arange(3)).__getitem__)(index)


VIEWS = pytest.mark.parametrize(
    "chosen",
    [slice(None), slice(None, None, -1), slice(1, None, 2), np.array([3, 0, 3])],
    ids=["all", "reversed", "strided", "chosen"],
)
X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))


@VIEWS
def test_vmap_and_scan_over_traced_indices(chosen):
    rows, wanted = lazyrows.iter(X)[chosen], np.asarray(X)[chosen]
    places = jnp.arange(len(rows))
    np.testing.assert_array_equal(jax.vmap(rows.__getitem__)(places), wanted)
    _, scanned = jax.lax.scan(lambda carry, place: (carry, rows[place]), 0, places)
    np.testing.assert_array_equal(scanned, wanted)


@VIEWS
def test_grad_with_respect_to_the_source(chosen):
    weights = jnp.arange(1.0, 7.0)

    def through_rows(x):
        rows = lazyrows.iter(x)[chosen]
        return sum(weights[k] * jnp.sum(row**2) for k, row in enumerate(rows)) + jnp.sum(rows[-1])

    def through_array(x):
        x = x[chosen]
        return jnp.sum(weights[: len(x)] * jnp.sum(x**2, axis=1)) + jnp.sum(x[-1])

    np.testing.assert_allclose(jax.grad(through_rows)(X), jax.grad(through_array)(X), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(through_rows))(X), jax.grad(through_array)(X), rtol=1e-5)


@VIEWS
def test_grad_with_respect_to_a_view(chosen):
    rows = lazyrows.iter(X)[chosen]
    gradient = jax.grad(lambda view: jnp.sum(view.stack() ** 2) + jnp.sum(view[0]))(rows)
    wanted = jax.grad(lambda x: jnp.sum(x[chosen] ** 2) + jnp.sum(x[chosen][0]))(X)
    assert isinstance(gradient, lazyrows.RowView)
    np.testing.assert_allclose(jax.tree.leaves(gradient)[0], wanted, rtol=1e-6)


@VIEWS
def test_rows_of_a_tracer_are_traced_rows(chosen):
    wanted = np.asarray(X)[chosen]

    def everything(x):
        rows = lazyrows.iter(x)[chosen]
        return list(rows), list(reversed(rows)), rows.stack(), [rows[k] for k in (0, -1)], rows[jnp.int32(1)]

    forward, backward, stacked, ends, second = jax.jit(everything)(X)
    np.testing.assert_array_equal(forward, wanted)
    np.testing.assert_array_equal(backward, wanted[::-1])
    np.testing.assert_array_equal(stacked, wanted)
    np.testing.assert_array_equal(ends, wanted[[0, -1]])
    np.testing.assert_array_equal(second, wanted[1])


def test_rows_of_a_batch_under_vmap():
    def last_two(x):
        *_, one, other = lazyrows.iter(x)
        return one - other

    batch = jnp.stack([X, 2 * X, -X])
    np.testing.assert_array_equal(jax.vmap(last_two)(batch), batch[:, -2] - batch[:, -1])


def test_a_scan_carries_rows_of_a_tracer():
    def body(carry, key):
        carry, subkey = lazyrows.iter(jax.random.split(carry))
        return carry, jax.random.key_data(subkey)

    def by_hand(carry, key):
        both = jax.random.split(carry)
        return both[0], jax.random.key_data(both[1])

    key = jax.random.key(3)
    for scanned, wanted in zip(jax.lax.scan(body, key, None, 4), jax.lax.scan(by_hand, key, None, 4)):
        assert portrait(scanned) == portrait(wanted)


@few
@given(short_arrays)
def test_traced_rows_have_the_types_of_concrete_ones(x):
    made = jax.eval_shape(lambda x: lazyrows.iter(x)[0], x)
    assert (made.dtype, made.shape) == (x.dtype, x.shape[1:])
    assert made.weak_type == getattr(x, "weak_type", False)


def test_a_tree_may_hold_tracers_beside_arrays():
    labels = np.arange(6)

    @jax.jit
    def rows(x):
        return list(lazyrows.iter({"x": x, "label": labels, "y": X}))

    made = rows(X)
    assert [int(row["label"]) for row in made] == list(range(6))
    np.testing.assert_array_equal([row["x"] for row in made], X)
    np.testing.assert_array_equal([row["y"] for row in made], X)


def test_no_tracer_outlives_its_trace():
    view = lazyrows.iter(X)
    with jax.checking_leaks():
        jitted = jax.jit(lambda: [view[0], view[1], view[2], *view[3:]])
        np.testing.assert_array_equal(jitted(), X)
    np.testing.assert_array_equal([view[0], view[1], view[2], *view[3:]], X)
    assert not any(isinstance(view[k], jax.core.Tracer) for k in range(6))


def test_a_traced_index_on_a_host_source_says_what_to_do():
    with pytest.raises(TypeError, match=r"jnp\.asarray"):
        jax.jit(lazyrows.iter(np.arange(3)).__getitem__)(0)


# ---- owners of rows and of sources


@pytest.mark.parametrize("options", [{}, {"chunk_size": 3}, {"prefetch": 0}])
def test_deleting_rows_harms_neither_siblings_nor_source(options):
    x = jnp.arange(40).reshape(20, 2)
    view = lazyrows.iter(x, **options)
    for place, row in enumerate(view):
        assert row.tolist() == [2 * place, 2 * place + 1]
        row.delete()
    for place in (3, 4, 3, 4, 4, 5, 3):
        assert view[place].tolist() == [2 * place, 2 * place + 1]
        view[place].delete()
    for row in (view[0], *view[:1], *view[:3]):
        row.delete()
    assert not x.is_deleted()
    assert view.stack().tolist() == x.tolist()


@pytest.mark.parametrize("shape", [(1,), (1, 4), (2,), (9, 3), (1, 0), (300,)])
def test_neither_rows_nor_stacks_are_the_source_itself(shape):
    x = jnp.asarray(np.ones(shape, np.float32))
    view = lazyrows.iter(x)
    for made in (view[0], next(iter(view)), view.stack(), jnp.asarray(view)):
        made.delete()
    assert not x.is_deleted()
    assert np.asarray(x).tobytes() == np.ones(shape, np.float32).tobytes()


def test_a_source_may_be_donated_once_its_rows_are_made():
    x = jnp.arange(600.0).reshape(300, 2)
    view = lazyrows.iter(x)
    rows = [view[0], view[1], *view, *view[::-7]]
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert [float(row[0]) for row in rows[2:302]] == [2.0 * k for k in range(300)]
    assert float(donated[0, 0]) == 1.0


@pytest.mark.parametrize("options", [{}, {"chunk_size": 2}, {"prefetch": 0}, {"chunk_size": 1}])
def test_the_rows_of_a_deleted_source_are_refused(options):
    x = jnp.arange(300)
    view = lazyrows.iter(x, **options)
    iterator, kept = iter(view), [view[0], view[1], view[2]]
    kept += [next(iterator) for _ in range(3)]
    x.delete()
    for ask in (lambda: view[0], lambda: view[1], lambda: view[299], lambda: list(view), view.stack, lambda: 7 in view):
        with pytest.raises(RuntimeError, match="deleted"):
            ask()
    with pytest.raises(RuntimeError, match="deleted"):
        list(iterator)
    assert next(iterator, "end") == "end"
    assert [int(row) for row in kept] == [0, 1, 2, 0, 1, 2]


@few
@given(st.sampled_from((1, 9, 40)).flatmap(draw_from.host_arrays), OPTIONS)
def test_editing_a_host_array_changes_no_row_delivered(x, options):
    x = np.array(x)
    view, wanted = lazyrows.iter(x, **options), model(x)
    rows = [*view, *(view[place] for place in range(len(view)))]
    stacked = portrait(view.stack())
    kept = view.stack()
    x[...] = np.zeros((), x.dtype)
    assert_same_rows(rows, wanted + wanted)
    assert portrait(kept) == stacked


# ---- refusals

VIEW = lazyrows.iter(jnp.arange(12).reshape(6, 2))


@pytest.mark.parametrize(
    ("index", "fragments"),
    [
        (True, ("True", "int(", "mask")),
        (np.True_, ("True", "int(", "mask")),
        (1.0, ("1.0", "int(")),
        (np.float32(1), ("1.0", "int(")),
        (None, ("None", "stack()[None]")),
        (..., ("...", "rows[:]")),
        ((0, 1), ("(0, 1)", "row", "stack()")),
        ("a", ("'a'", "integer")),
        ({}, ("{}", "integer")),
        ([0, 1.5], ("1.5", "integers")),
        ([True, 0], ("True", "integers")),
        (np.array([0.5]), ("float64", "integers")),
        (np.zeros((2, 2), int), ("(2, 2)", "1-D")),
        (jnp.asarray([0.5]), ("float32", "integers")),
        (jnp.asarray(0.5), ("0.5", "int(")),
        (jnp.asarray(True), ("True", "int(", "mask")),
    ],
    ids=repr,
)
def test_an_index_of_no_meaning_is_refused_with_what_to_write_instead(index, fragments):
    with pytest.raises(TypeError) as refused:
        VIEW[index]
    assert all(fragment in str(refused.value) for fragment in fragments), str(refused.value)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (6, "6 is out of range for 6 rows"),
        (-7, "-7 is out of range for 6 rows"),
        (2**70, f"{2**70} is out of range for 6 rows"),
        ([0, 6], "6 at position 1 is out of range for 6 rows"),
        (np.array([-7, 0]), "-7 at position 0 is out of range for 6 rows"),
        (jnp.array([0, 1, 9]), "9 at position 2 is out of range for 6 rows"),
        ([True] * 5, r"\(5,\) cannot index 6 rows"),
        (np.zeros(7, bool), r"\(7,\) cannot index 6 rows"),
        (jnp.zeros(1, bool), r"\(1,\) cannot index 6 rows"),
        (np.zeros(0, bool), r"\(0,\) cannot index 6 rows"),
    ],
    ids=repr,
)
def test_an_index_out_of_range_is_named(index, message):
    with pytest.raises(IndexError, match=message):
        VIEW[index]


def test_a_step_of_zero_is_refused():
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        VIEW[::0]


MASKED = np.ma.masked_array([1, 2], [True, False])


@pytest.mark.parametrize(
    ("source", "error", "fragments"),
    [
        (jnp.int32(1), TypeError, ("iteration over a 0-d array",)),
        (np.array(1), TypeError, ("iteration over a 0-d array",)),
        (np.float32(1), TypeError, ("iteration over a 0-d array",)),
        (jax.random.key(0), TypeError, ("iteration over a 0-d array",)),
        ({"a": jnp.arange(3), "b": jnp.int32(1)}, TypeError, ("iteration over a 0-d array", "['b']")),
        ({"a": jnp.zeros((3, 2)), "b": [np.zeros(4)]}, ValueError, ("['a']", "(3, 2)", "['b'][0]", "(4,)")),
        ((), ValueError, ("no array leaves",)),
        (None, ValueError, ("no array leaves",)),
        ({"a": None}, ValueError, ("no array leaves",)),
        (3, TypeError, ("int",)),
        ("text", TypeError, ("str",)),
        ([1, 2], TypeError, ("int", "[0]")),
        ({"a": range(3)}, TypeError, ("range", "['a']")),
        (np.array([None, 1]), TypeError, ("object", "(2,)")),
        ({"a": np.array(["x"])}, TypeError, ("<U1", "['a']", "(1,)")),
        (np.array([b"x"]), TypeError, ("|S1", "(1,)")),
        (np.array(["2020"], "M8[s]"), TypeError, ("datetime64[s]", "(1,)")),
        (np.array([1], "m8[s]"), TypeError, ("timedelta64[s]", "(1,)")),
        (np.zeros(3, [("x", int)]), TypeError, ("('x'", "(3,)")),
        (np.zeros(3, np.longdouble), TypeError, ("longdouble", "(3,)")),
        ((MASKED,), TypeError, ("MaskedArray", "[0]", "(2,)")),
    ],
    ids=repr,
)
def test_what_has_no_rows_is_refused_at_construction(source, error, fragments):
    with pytest.raises(error) as refused:
        lazyrows.iter(source)
    text = str(refused.value)
    for fragment in fragments:
        same = fragment in text or (fragment == "longdouble" and str(np.dtype(np.longdouble)) in text)
        assert same, text


@pytest.mark.parametrize("source", [jnp.arange(3), lazyrows.iter(jnp.arange(3))], ids=["array", "view"])
@pytest.mark.parametrize(
    ("options", "error", "fragment"),
    [
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, not 0"),
        ({"chunk_size": -3}, ValueError, "not -3"),
        ({"chunk_size": 2.0}, TypeError, "chunk_size must be an integer or None, not 2.0"),
        ({"chunk_size": True}, TypeError, "not True"),
        ({"chunk_size": "8"}, TypeError, "not '8'"),
        ({"prefetch": -1}, ValueError, "prefetch must be at least 0, not -1"),
        ({"prefetch": 1.5}, TypeError, "prefetch must be an integer or None, not 1.5"),
        ({"prefetch": False}, TypeError, "not False"),
        ({"device": "cpu"}, TypeError, "not 'cpu'"),
        ({"device": 0}, TypeError, "not 0"),
    ],
    ids=str,
)
def test_options_are_checked_at_once_and_named_with_their_value(source, options, error, fragment):
    with pytest.raises(error) as refused:
        lazyrows.iter(source, **options)
    assert fragment in str(refused.value)


def test_options_are_keywords_alone():
    with pytest.raises(TypeError, match="positional"):
        lazyrows.iter(jnp.arange(3), 8)


def test_a_view_of_a_view_is_itself_unless_options_are_given():
    view = lazyrows.iter(jnp.arange(6))[::-1]
    assert lazyrows.iter(view) is view
    other = lazyrows.iter(view, chunk_size=2, prefetch=0, device=jax.devices()[1])
    assert other is not view
    assert [int(row) for row in other] == [5, 4, 3, 2, 1, 0]
    assert other[0].devices() == {jax.devices()[1]}
    assert view[0].devices() == {jax.devices()[0]}


def test_views_may_be_leaves_of_a_tree():
    view = lazyrows.iter({"x": jnp.arange(6)})
    both = lazyrows.iter({"forward": view, "backward": view[::-1]})
    assert [(int(row["forward"]["x"]), int(row["backward"]["x"])) for row in both[::2]] == [(0, 5), (2, 3), (4, 1)]
    with pytest.raises(ValueError, match=r"\['backward'\].*5 rows"):
        lazyrows.iter({"forward": view, "backward": view[1:]})
