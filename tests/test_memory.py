"""How many bytes of arrays live, at each moment, because of rows: `jax.live_arrays()` counts them.

The garbage collector is off, so that what has been let go of is gone because nothing holds it.
"""

import gc
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lazyrows

MIB = 2**20
ROW = 64 * 2**10
SCALARS = 4096  # the offsets within a chunk, kept on each device


@pytest.fixture
def held() -> Iterator[Callable[[], int]]:
    """Bytes of the arrays that live now, beyond those at the first call."""
    gc.collect()
    gc.disable()
    first: list[int] = []

    def count() -> int:
        now = sum(array.nbytes for array in jax.live_arrays() if not array.is_deleted())
        first.append(now)
        return now - first[0]

    yield count
    gc.enable()


def source(rows: int, row_bytes: int = ROW) -> jax.Array:
    return jnp.arange(rows * row_bytes // 4, dtype=jnp.int32).reshape(rows, -1)


def test_an_iterator_paused_in_large_rows_holds_at_most_140_mib(held):
    rows = lazyrows.iter(source(64, 8 * MIB))
    assert held() == 0
    iterator = iter(rows)
    for _ in range(3):
        row = next(iterator)
        assert 8 * MIB <= held() <= 140 * MIB
    del iterator
    assert held() <= 8 * MIB + SCALARS
    assert int(row[0]) == 2 * 2 * MIB


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("chunk_size", [1, 8, 13])
@pytest.mark.parametrize("step", [1, -1, 3])
def test_an_iterator_holds_at_most_two_chunks_beyond_its_look_ahead(held, chunk_size, prefetch, step):
    rows = lazyrows.iter(source(101), chunk_size=chunk_size, prefetch=prefetch)[::step]
    assert held() == 0
    most = max(held() for _ in rows)
    assert ROW <= most <= (prefetch + 2) * chunk_size * ROW + SCALARS
    assert held() <= SCALARS


def test_the_default_chunk_of_rows_of_any_size_is_within_a_budget(held):
    for row_bytes in (4, 2**10, ROW, 2 * MIB):
        rows = lazyrows.iter(source(600 if row_bytes <= ROW else 20, row_bytes))
        before = held()
        assert max(held() for _ in rows) - before <= max(MIB, 4 * row_bytes)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_the_first_row_is_made_alone(held, prefetch):
    rows = lazyrows.iter(source(101), chunk_size=8, prefetch=prefetch)
    assert held() == 0
    assert next(iter(rows)).nbytes == ROW
    iterator = iter(rows)
    row = next(iterator)
    assert held() == row.nbytes


def test_without_look_ahead_nothing_is_made_beyond_the_chunk_asked_for(held):
    rows = lazyrows.iter(source(101), chunk_size=8, prefetch=0)
    assert held() == 0
    iterator, kept = iter(rows), []
    for _ in range(1 + 8):
        kept.append(next(iterator))
        # the rows delivered, the block they came from, and the rows of the block still to be delivered
        assert held() <= (1 + 8 + 8) * ROW + SCALARS
    del iterator
    assert held() <= (1 + 8) * ROW + SCALARS
    assert [int(row[0]) for row in kept] == [k * ROW // 4 for k in range(9)]


def test_dropping_an_iterator_frees_all_but_the_rows_delivered(held):
    rows = lazyrows.iter(source(101), chunk_size=8, prefetch=3)
    assert held() == 0
    iterator = iter(rows)
    kept = [next(iterator) for _ in range(5)]
    assert held() > 24 * ROW
    del iterator
    assert held() <= 5 * ROW + SCALARS
    del rows
    assert held() <= 5 * ROW + SCALARS - 101 * ROW  # the source has gone as well
    assert [int(row[-1]) for row in kept] == [(k + 1) * ROW // 4 - 1 for k in range(5)]


def test_the_chunk_a_view_keeps_goes_with_the_view(held):
    x = source(101)
    assert held() == 0
    rows = lazyrows.iter(x, chunk_size=8)
    assert [int(rows[i][0]) for i in (17, 18, 20)] == [i * ROW // 4 for i in (17, 18, 20)]
    assert 8 * ROW <= held() <= 2 * 8 * ROW + SCALARS
    assert int(rows[90][0]) == 90 * ROW // 4  # another chunk: the one before goes
    assert held() <= SCALARS
    assert int(rows[91][0]) == 91 * ROW // 4
    assert held() >= 8 * ROW
    del rows
    assert held() <= SCALARS


def test_slices_of_a_view_keep_one_chunk_between_them(held):
    rows = lazyrows.iter(source(101), chunk_size=8)
    assert held() == 0
    for start in range(20):
        view = rows[start:]
        assert int(view[1][0]) == (start + 1) * ROW // 4
        assert int(view[2][0]) == (start + 2) * ROW // 4
    assert held() <= 2 * 8 * ROW + SCALARS


def test_building_and_describing_views_makes_no_arrays(held):
    x = source(101, 4096)
    assert held() == 0
    number = len(jax.live_arrays())
    rows = lazyrows.iter({"a": x, "b": x}, chunk_size=8)
    views = [rows, rows[::-1], rows[5:50:3], rows[[9, 1]], rows[np.arange(101) % 2 == 0], iter(rows), reversed(rows)]
    assert [len(view) for view in views[:5]] == [101, 101, 15, 2, 51]
    assert repr(rows) == "RowView(101 rows of {'a': int32[1024], 'b': int32[1024]})"
    assert rows.element_spec["a"].shape == (1024,)
    assert len(jax.live_arrays()) == number


def test_an_exhausted_iterator_holds_nothing(held):
    rows = lazyrows.iter(source(101), chunk_size=8)
    assert held() == 0
    iterator = iter(rows)
    assert sum(1 for _ in iterator) == 101
    assert held() <= SCALARS
    assert next(iterator, None) is None
