"""An order is the list of its positions: every operation is compared with Python's own list, and none reads data."""

import numpy as np
import pytest
import strategies as rows
from hypothesis import given
from hypothesis import strategies as st

from lazyrows._orders import Order

SIZES = st.integers(0, 40)


def select(order, index):
    return order.slice(index) if isinstance(index, slice) else order.select(index)


@st.composite
def orders(draw, length=None):
    """An order and the list it stands for, after a few slices, integer lists and masks one upon the other."""
    length = draw(SIZES) if length is None else length
    order, positions = Order(range(length)), list(range(length))
    for _ in range(draw(st.integers(0, 2))):
        index = draw(rows.selections(len(positions)))
        positions = rows.select(positions, index)
        order = select(order, index)
    return order, positions


def positions_of(order):
    return [order[place] for place in range(len(order))]


@given(orders())
def test_an_order_of_orders_is_the_list_of_lists(pair):
    order, positions = pair
    assert len(order) == len(positions)
    assert positions_of(order) == positions
    assert [order[-place - 1] for place in range(len(order))] == positions[::-1]
    assert all(type(position) is int for position in positions_of(order))


@given(orders(), st.integers(0, 50))
def test_a_place_out_of_range_is_named_with_the_length(pair, beyond):
    order, positions = pair
    for place in (len(positions) + beyond, -len(positions) - 1 - beyond):
        with pytest.raises(IndexError, match=rf"{place} is out of range for {len(positions)} rows"):
            order[place]


@given(SIZES.flatmap(lambda n: st.tuples(st.just(n), rows.slices(n), rows.slices(n))))
def test_a_slice_of_a_slice_stays_a_range(drawn):
    length, first, second = drawn
    order = Order(range(length)).slice(first).slice(second)
    assert isinstance(order.positions, range)
    assert positions_of(order) == list(range(length))[first][second]


@pytest.mark.parametrize("order", [Order(range(3)), Order(range(0)), Order(range(3)).select([2, 1])])
def test_a_step_of_zero_is_refused(order):
    with pytest.raises(ValueError, match="step cannot be zero"):
        order.slice(slice(None, None, 0))


@given(orders(), st.integers(1, 12))
def test_chunks_cover_the_order_exactly(pair, size):
    order, positions = pair
    chunks = list(order.chunks(size))
    assert [position for chunk in chunks for position in positions_of(chunk)] == positions
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert all(1 <= len(chunk) <= size for chunk in chunks)


@pytest.mark.parametrize("length", [3_000_000_000, 10**15])
def test_plans_of_billions_of_rows_are_made_only_as_far_as_wanted(length):
    backwards = Order(range(length)).slice(slice(None, None, -1))
    first = next(backwards.chunks(256))
    assert first.positions == range(length - 1, length - 257, -1)
    assert first.indices(256, length).tolist() == list(range(length - 1, length - 257, -1))


@pytest.mark.parametrize("index", [[2_999_999_999, -1, 0], np.array([2_999_999_999, -1, 0])])
def test_positions_beyond_32_bits_are_chosen_exactly(index):
    order = Order(range(3_000_000_000))
    assert positions_of(order.select(index)) == [2_999_999_999, 2_999_999_999, 0]
    assert positions_of(order.slice(slice(None, None, -1)).select(index)) == [0, 0, 2_999_999_999]


@given(orders().filter(lambda pair: len(pair[1]) > 0), st.integers(0, 9))
def test_indices_are_the_positions_padded_with_the_last(pair, padding):
    order, positions = pair
    indices = order.indices(len(order) + padding, 40)
    assert indices.tolist() == positions + positions[-1:] * padding


@pytest.mark.parametrize(
    ("bound", "dtype"), [(0, np.int32), (2**31 - 1, np.int32), (2**31, np.int64), (2**40, np.int64)]
)
def test_indices_are_as_wide_as_the_source_needs(bound, dtype):
    for order in (Order(range(5)), Order(range(5)).slice(slice(None, None, -2)), Order(range(5)).select([4, 0])):
        assert order.indices(6, bound).dtype == dtype


@given(st.data())
def test_an_order_then_another_is_one_list_indexed_by_the_other(data):
    outer, outer_positions = data.draw(orders())
    inner, inner_positions = data.draw(orders(len(outer_positions)))
    assert positions_of(outer.then(inner)) == [outer_positions[place] for place in inner_positions]


@given(SIZES.flatmap(lambda n: st.tuples(st.just(n), orders(n))))
def test_as_index_takes_the_rows_of_an_array(drawn):
    length, (order, positions) = drawn
    index = order.as_index()
    assert np.arange(length)[index].tolist() == positions
    assert isinstance(index, slice) == isinstance(order.positions, range)


@given(orders())
def test_a_window_is_neighbours_in_ascending_order(pair):
    order, positions = pair
    start = order.window()
    if start is not None:
        assert positions == list(range(start, start + len(positions)))
        assert positions


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20))
def test_every_run_of_neighbours_has_a_window(start, count, beyond):
    order = Order(range(start + count + beyond)).slice(slice(start, start + count))
    assert order.window() == start


@given(SIZES, st.data())
def test_orders_made_alike_are_equal_and_hash_alike(length, data):
    index = data.draw(rows.selections(length))
    one, other = (select(Order(range(length)), index) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


@given(orders(), orders())
def test_equal_orders_have_equal_positions(one, other):
    (order, positions), (second, second_positions) = one, other
    if order == second:
        assert positions == second_positions
        assert hash(order) == hash(second)
    if positions != second_positions:
        assert order != second


@given(orders())
def test_an_order_equals_nothing_but_orders(pair):
    order, positions = pair
    assert order != positions
    assert order != tuple(positions)
    assert order != order.positions


@given(SIZES.flatmap(lambda n: st.lists(st.integers(-n, n - 1)) if n else st.just([])))
def test_editing_an_index_array_afterwards_changes_no_order(values):
    index = np.array(values, np.int64)
    order = Order(range(40)).select(index)
    before = positions_of(order)
    index[:] = 0
    assert positions_of(order) == before


@given(orders(), st.data())
def test_an_integer_out_of_range_is_named_with_its_position(pair, data):
    order, positions = pair
    place = data.draw(st.integers(0, 5))
    outside = data.draw(st.sampled_from((len(positions), -len(positions) - 1, 2**63, -(2**63) - 1, 10**30)))
    good = [0] * 5 if positions else []
    entries = [*good[:place], outside, *good[place:]]
    where = entries.index(outside)
    with pytest.raises(IndexError, match=rf"{outside} at position {where} is out of range for {len(positions)} rows"):
        order.select(entries)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_the_extremes_of_an_integer_array_are_out_of_range_and_not_wrapped(dtype):
    for value in (np.iinfo(dtype).max, np.iinfo(dtype).min or 3):
        with pytest.raises(IndexError, match=rf"{value} at position 1 is out of range for 3 rows"):
            Order(range(3)).select(np.array([0, value], dtype))


@given(orders(), st.integers(1, 20), st.integers(1, 9), st.integers(0, 20))
def test_reads_find_every_row_meet_nothing_twice_and_leave_out_what_is_far_between(pair, size, align, gap):
    order, positions = pair
    found, read = {}, []
    for window, places, chosen in order.reads(size, align, gap):
        rows = np.arange(window.start, window.stop)
        assert {rows[0], rows[-1]} <= set(positions)
        wanted = sorted(set(positions) & set(rows.tolist()))
        assert max(np.diff(wanted), default=0) <= max(gap, 2 * align - 1)
        found |= dict(zip(np.arange(len(positions))[places].tolist(), rows[chosen].tolist()))
        read += rows.tolist()
    assert found == dict(enumerate(positions))
    assert read == sorted(set(read))


@given(orders(), st.integers(1, 5), st.booleans())
def test_a_mask_of_another_length_is_refused(pair, more, as_list):
    order, positions = pair
    for length in {len(positions) + more, abs(len(positions) - more)} - {len(positions), 0}:
        mask = [True] * length if as_list else np.ones(length, bool)
        with pytest.raises(IndexError, match=rf"{length},\).*cannot index {len(positions)} rows"):
            order.select(mask)


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (), (3, 3)])
@pytest.mark.parametrize("dtype", [np.bool_, np.int32])
def test_an_index_array_of_another_rank_is_refused(shape, dtype):
    refusal = IndexError if dtype is np.bool_ else TypeError
    with pytest.raises(refusal, match=rf"{np.ones(shape).shape}".replace("(", r"\(").replace(")", r"\)")):
        Order(range(3)).select(np.ones(shape, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, object, "U1", "M8[s]"])
def test_an_index_array_of_another_dtype_is_refused_by_name(dtype):
    index = np.array([0, 1], "int64").astype(dtype)
    with pytest.raises(TypeError, match=r"not by " + str(index.dtype).replace("[", r"\[")):
        Order(range(3)).select(index)


@pytest.mark.parametrize("entry", [1.0, None, "1", (1,), [1], slice(1), ..., np.float32(1), True])
def test_a_list_of_anything_but_integers_is_refused_with_the_entry(entry):
    with pytest.raises(TypeError) as refusal:
        Order(range(3)).select([0, entry])
    assert repr(entry) in str(refusal.value)
