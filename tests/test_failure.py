"""What goes wrong stays where it went wrong: deletion, donation, abandoned iterators, threads, interpreter exit."""

import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lazyrows

LENGTH = 1000
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
increment = jax.jit(lambda x: x + 1, donate_argnums=0)


def source() -> jax.Array:
    return jnp.arange(LENGTH * 3).reshape(LENGTH, 3)


def first(row: jax.Array) -> int:
    return int(row[0]) // 3


WAYS_TO_LOSE = {"deleted": lambda x: x.delete(), "donated": increment}
WAYS_TO_READ: dict[str, Callable[[Any], Any]] = {
    "a row": lambda rows: rows[0],
    "a row of the chunk it keeps": lambda rows: rows[502],
    "iteration": lambda rows: list(rows),
    "reversed": lambda rows: next(reversed(rows)),
    "a strided slice": lambda rows: list(rows[::7]),
    "an order": lambda rows: list(rows[[5] * 20]),
    "stack": lambda rows: rows.stack(),
    "count": lambda rows: rows.count(jax.tree.map(jnp.zeros_like, rows.element_spec)),
}


@pytest.mark.parametrize("lose", WAYS_TO_LOSE.values(), ids=WAYS_TO_LOSE)
@pytest.mark.parametrize("read", WAYS_TO_READ.values(), ids=WAYS_TO_READ)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"x": x}], ids=["array", "tree"])
def test_a_lost_source_is_an_error_that_says_so_and_harms_no_row_delivered(lose, read, wrap):
    x = source()
    rows = lazyrows.iter(wrap(x))
    kept = [*rows[:20], rows[-1], rows[500], rows[501]]  # warm: what was compiled and kept must not hide it
    read(lazyrows.iter(wrap(source())))
    lose(x)
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        read(rows)
    assert [first(row) for row in map(leaf, kept)] == [*range(20), 999, 500, 501]


def leaf(row: Any) -> jax.Array:
    return jax.tree.leaves(row)[0]


@pytest.mark.parametrize("lose", WAYS_TO_LOSE.values(), ids=WAYS_TO_LOSE)
def test_an_iterator_whose_source_is_lost_raises_once_its_chunks_are_used_up(lose):
    x, delivered = source(), []
    iterator = iter(lazyrows.iter(x, chunk_size=16, prefetch=1))
    delivered += [next(iterator) for _ in range(5)]
    lose(x)
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        delivered.extend(iterator)
    assert len(delivered) <= 1 + 2 * 16
    assert [first(row) for row in delivered] == list(range(len(delivered)))


@pytest.mark.parametrize("wanted", [slice(None), slice(None, None, -1), slice(None, None, 7)])
def test_a_source_can_be_donated_once_its_rows_are_made(wanted):
    x = source()
    rows = lazyrows.iter(x)
    made = [*rows[wanted], rows[3], rows[4], rows[-1]]
    positions = [*range(LENGTH)[wanted], 3, 4, LENGTH - 1]
    y = increment(x)
    assert x.is_deleted()
    assert int(y[0, 0]) == 1
    assert [first(row) for row in made] == positions


@pytest.mark.parametrize("lose", WAYS_TO_LOSE.values(), ids=WAYS_TO_LOSE)
def test_losing_a_row_harms_neither_its_siblings_nor_the_source_nor_the_next_row_like_it(lose):
    x = source()
    rows = lazyrows.iter(x)
    for made in (list(rows), list(reversed(rows))[::-1], [rows[i] for i in range(40)], list(rows[[0, 1, 2, 2, 1] * 5])):
        lose(made[2])
        assert made[2].is_deleted()
        assert not any(row.is_deleted() for row in [*made[:2], *made[3:]])
    for i in range(20):
        lose(rows[i])
        assert first(rows[i]) == i
    assert not x.is_deleted()
    assert [first(row) for row in rows] == list(range(LENGTH))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_losing_the_stack_or_the_rows_of_a_short_source_leaves_the_source(length):
    x = source()[:length]
    rows = lazyrows.iter(x)
    for made in (rows.stack(), rows[:1].stack(), *rows, rows[0]):
        made.delete()
    assert not x.is_deleted()
    assert rows.stack().tolist() == source()[:length].tolist()


def test_an_exhausted_iterator_stays_exhausted():
    for length in (0, 1, 9, LENGTH):
        iterator = iter(lazyrows.iter(source())[:length])
        assert len(list(iterator)) == length
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(iterator)


def test_iterators_of_one_view_are_independent():
    rows = lazyrows.iter(source(), chunk_size=16)
    iterators = [iter(rows), reversed(rows), iter(rows), iter(rows[::-3])]
    places = [range(LENGTH), range(LENGTH)[::-1], range(LENGTH), range(LENGTH)[::-3]]
    for turn in range(60):
        assert [first(next(iterator)) for iterator in iterators] == [place[turn] for place in places]
    del iterators[0]
    assert first(next(iterators[0])) == LENGTH - 61


def test_leaving_a_loop_by_break_or_exception_leaves_the_view_usable_and_no_iterator_behind():
    rows = lazyrows.iter(source(), chunk_size=16)
    gone = []
    for leave in ("break", "exception"):
        iterator = iter(rows)
        gone.append(weakref.ref(leaf(next(iterator))))
        try:
            for row in iterator:
                gone.append(weakref.ref(row))
                if leave == "break":
                    break
                raise KeyError("the consumer's own")
        except KeyError:
            pass
        del iterator, row
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert [first(row) for row in rows] == list(range(LENGTH))


def test_threads_share_a_view():
    rows = lazyrows.iter(source(), chunk_size=16)
    barrier = Barrier(4)

    def use(seed: int) -> bool:
        places = np.random.default_rng(seed).integers(0, LENGTH - 2, 150)
        barrier.wait()
        found = [first(rows[int(place) + k]) for place in places for k in range(3)]
        passed = [first(row) for row in rows[::-1]]
        wanted = [int(place) + k for place in places for k in range(3)]
        return (found, passed) == (wanted, list(range(LENGTH))[::-1])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(4))) == [True] * 4


def test_rows_belong_to_the_default_device_of_the_thread_that_asks():
    rows = lazyrows.iter(source(), chunk_size=16)
    barrier = Barrier(4)

    def use(number: int) -> list[set[jax.Device]]:
        device = jax.devices()[number]
        barrier.wait()
        with jax.default_device(device):
            made = [rows[i] for _ in range(10) for i in (200, 201, 202)] + list(rows[:100])
        return [row.devices() for row in made]

    with ThreadPoolExecutor(4) as pool:
        for number, devices in enumerate(pool.map(use, range(4))):
            assert devices == [{jax.devices()[number]}] * 130


def test_rows_of_host_arrays_have_the_dtype_of_the_thread_that_asks():
    rows = lazyrows.iter(np.arange(2000.0).reshape(1000, 2), chunk_size=16)
    barrier = Barrier(4)

    def use(wide: bool) -> set[Any]:
        barrier.wait()
        with enable_x64(wide):
            made = [rows[i] for _ in range(10) for i in (200, 201, 202)] + list(rows[:100])
        return {row.dtype for row in made}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(use, [True, False, True, False]))
    assert found == [{np.dtype("float64")}, {np.dtype("float32")}] * 2


def test_rows_made_ready_under_one_config_are_not_delivered_under_another():
    rows = lazyrows.iter(np.arange(2000.0).reshape(1000, 2))
    for wide in (True, False, True):
        with enable_x64(wide):
            made = [rows[i] for i in (200, 201, 202)]
        assert {row.dtype for row in made} == {np.dtype("float64" if wide else "float32")}
    rows = lazyrows.iter(source())
    for place, device in ((200, jax.devices()[2]), (203, jax.devices()[5]), (205, jax.devices()[2])):
        with jax.default_device(device):
            made = [rows[place], rows[place + 1]]
        assert [(row.devices(), first(row)) for row in made] == [({device}, place), ({device}, place + 1)]


PAUSED = """
import jax.numpy as jnp, numpy as np, lazyrows
sources = [jnp.arange(6000).reshape(2000, 3), np.arange(6000).reshape(2000, 3), {"x": jnp.arange(99)}]
views = [lazyrows.iter(source, prefetch=3) for source in sources]
paused = [iterate(view) for view in views for iterate in (iter, reversed)]
rows = [next(iterator) for _ in range(5) for iterator in paused]
cycle = [rows, paused]
cycle.append(cycle)
"""


def test_the_interpreter_exits_at_once_with_iterators_paused():
    run = subprocess.run([sys.executable, "-W", "error", "-c", PAUSED], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


ENTERED_TWICE = """
import threading
import jax.numpy as jnp
import lazyrows

iterator = iter(lazyrows.iter(jnp.arange(3000.0)))

def take():
    try:
        list(iterator)
    except ValueError as error:
        assert "already executing" in str(error)

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_an_iterator_that_threads_share_against_the_rules_does_not_crash():
    subprocess.run([sys.executable, "-W", "error", "-c", ENTERED_TWICE], check=True, timeout=120)


def test_a_view_of_other_arrays_than_it_was_made_of_is_refused_also_after_pickling():
    view = jax.tree.map(lambda array: array[:3], lazyrows.iter(jnp.arange(100)))
    for rebuilt in (view, pickle.loads(pickle.dumps(view))):
        with pytest.raises(ValueError, match="others in their place"):
            rebuilt[50]
