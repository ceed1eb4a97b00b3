"""A machine that walks views of one source every way at once, beside the lists they stand for; the source dies last."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import strategies as draw_from
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from strategies import OPTIONS, assert_same_row, model, portrait

import lazyrows

LENGTHS = st.sampled_from((1, 9, 40, 300))
# few, because each combination is compiled
SPECS = (("float32", (3,)), ("int32", ()), ("bfloat16", (2, 0)), ("int4", (2, 2)))


@st.composite
def device_arrays(draw, length):
    dtype, row_shape = draw(st.sampled_from(SPECS))
    values = draw_from.host_values(dtype, (length, *row_shape), draw(draw_from.SEEDS))
    return jnp.asarray(values)


@st.composite
def device_sources(draw):
    length = draw(LENGTHS)
    leaves, seed = device_arrays(length), draw(draw_from.SEEDS)
    keys = jax.random.split(jax.random.key(seed), length)
    return draw(st.one_of(leaves, leaves, st.just(keys), draw_from.trees(st.one_of(leaves, st.just(keys)))))


@st.composite
def host_sources(draw):
    length = draw(LENGTHS)
    leaves = draw_from.host_arrays(length, SPECS).map(np.array)
    return draw(st.one_of(leaves, draw_from.trees(leaves)))


class Views(RuleBasedStateMachine):
    """Views with the lists they stand for; iterators likewise; and every row ever handed out, with its portrait."""

    views = Bundle("views")
    iterators = Bundle("iterators")
    sources = device_sources()

    @initialize(target=views, data=st.data(), options=OPTIONS)
    def view(self, data, options):
        self.source = data.draw(type(self).sources)
        self.rows = []
        expected = model(self.source)
        return lazyrows.iter(self.source, **options), expected

    @rule(target=views, pair=views, data=st.data())
    def select(self, pair, data):
        view, expected = pair
        index = data.draw(draw_from.selections(len(expected)))
        return view[index], draw_from.select(expected, index)

    @rule(target=views, pair=views, options=OPTIONS)
    def give_options_again(self, pair, options):
        view, expected = pair
        return lazyrows.iter(view, **options), expected

    @rule(target=iterators, pair=views, backwards=st.booleans())
    def iterate(self, pair, backwards):
        view, expected = pair
        return (reversed(view), reversed(expected)) if backwards else (iter(view), iter(expected))

    @rule(pair=iterators, steps=st.sampled_from((1, 1, 2, 9)))
    def advance(self, pair, steps):
        iterator, wanted = pair
        for _ in range(steps):
            row, expected = next(iterator, "end"), next(wanted, "end")
            assert (row == "end") == (expected == "end")
            if expected != "end":
                self.keep(row, expected)

    @rule(pair=views, data=st.data())
    def take_rows(self, pair, data):
        view, expected = pair
        length = len(expected)
        for place in data.draw(st.lists(st.integers(-length, length - 1), max_size=4)) if length else ():
            self.keep(view[place], expected[place])

    @rule(pair=views)
    def refuse_places_beyond(self, pair):
        view, expected = pair
        for place in (len(expected), -len(expected) - 1):
            with pytest.raises(IndexError, match="out of range"):
                view[place]

    @rule(pair=views)
    def stack(self, pair):
        view, expected = pair
        _, columns = portrait(view.stack())
        for place, column in enumerate(columns):
            assert column.bits == b"".join(row[place].bits for _, row in expected)
            assert column.shape[0] == len(view) == len(expected)

    @rule(pair=views, data=st.data())
    def search(self, pair, data):
        view, expected = pair
        if expected:
            value = view[data.draw(st.integers(0, len(expected) - 1))]
            values = draw_from.equals(view.stack(), value)
            assert view.count(value) == sum(values)
            assert (value in view) == any(values)
            if any(values):
                assert view.index(value) == values.index(True)

    @rule(pair=views)
    def pickle(self, pair):
        view, expected = pair
        self.check_all(pickle.loads(pickle.dumps(view)), expected)

    @rule(pair=views)
    def rebuild(self, pair):
        view, expected = pair
        self.check_all(jax.tree.map(lambda leaf: leaf, view), expected)

    def check_all(self, view, expected):
        assert len(view) == len(expected)
        for row, wanted in zip(view, expected, strict=True):
            assert_same_row(row, wanted)

    @rule(data=st.data())
    def delete_a_row(self, data):
        if self.rows:
            row, _ = self.rows.pop(data.draw(st.integers(0, len(self.rows) - 1)))
            jax.tree.map(lambda leaf: leaf.delete(), row)

    def keep(self, row, expected):
        assert_same_row(row, expected)
        self.rows.append((row, expected))

    def teardown(self):
        if not hasattr(self, "source"):
            return
        self.spoil_source()
        for row, expected in self.rows:
            assert_same_row(row, expected)

    def spoil_source(self):
        """Delete the source: its rows cannot be made any more, and those made are as they were."""
        view = lazyrows.iter(self.source)
        jax.tree.map(lambda leaf: leaf.delete(), self.source)
        for ask in (lambda: view[0], lambda: view[-1], lambda: next(iter(view)), view.stack):
            with pytest.raises(RuntimeError, match="deleted"):
                ask()


class HostViews(Views):
    """The same over NumPy arrays: edited at the end, which shows in no row delivered, and in every row from then on."""

    sources = host_sources()

    def spoil_source(self):
        view = lazyrows.iter(self.source)
        assert_same_row(view[0], model(self.source)[0])
        for leaf in jax.tree.leaves(self.source):
            leaf[...] = np.ones((), leaf.dtype)
        self.check_all(view, model(self.source))
        assert_same_row(view[0], model(self.source)[0])


TestViews = Views.TestCase
TestHostViews = HostViews.TestCase
TestViews.settings = TestHostViews.settings = settings(max_examples=12, stateful_step_count=25)
