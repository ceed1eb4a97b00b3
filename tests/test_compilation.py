"""How many programs are compiled, how often they run, and how many outputs they have.

Compilations are counted by JAX's own monitoring. Executions are counted by importing the package anew over a recording
`jax.jit`, so that what runs counts, wherever in the package it is run from.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lazyrows

COMPILED: list[str] = []


def _listen(event: str, duration: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)  # the oldest JAX supported cannot unregister one


@contextmanager
def compilations(at_most: int, at_least: int = 0) -> Iterator[None]:
    before = len(COMPILED)
    yield
    assert at_least <= len(COMPILED) - before <= at_most


def source(length: int, *row: int) -> jax.Array:
    return jnp.asarray(np.arange(length * int(np.prod(row)), dtype=np.int32).reshape(length, *row))


def use_every_way(rows: "lazyrows.RowView[Any]") -> None:
    """Forward, in reverse, in steps, slices, tails, at random and in orders of many lengths."""
    length = len(rows)
    places = np.random.default_rng(length).permutation(length)
    views = [rows, rows[::-1], rows[1:], rows[:-1], rows[::3], rows[::-2], rows[length // 2 :], rows[places], rows[[0]]]
    made = sum(len(list(view)) for view in views) + len(list(reversed(rows))) + len(list(islice(rows, 3)))
    made += sum(1 for i in places[:20] if rows[int(i)].shape == rows[-int(i) - 1].shape)
    assert made >= 6 * length - 1


def test_a_compilation_is_counted():
    with compilations(at_least=1, at_most=1):
        jax.jit(lambda x: x * 12345)(np.float32(1))


@pytest.mark.parametrize("row", [(), (7, 5), (4099,)], ids=["tiny", "small", "large"])
def test_a_new_length_compiles_at_most_three_programs_beside_those_of_the_row_type(row):
    for length in (1100, 100, 20, 5):  # one of each size of chunk
        use_every_way(lazyrows.iter(source(length, *row)))
    for length in (1, 7, 8, 9, 31, 127, 129, 257, 1024):
        x = source(length, *row)
        with compilations(at_most=3):
            use_every_way(lazyrows.iter(x))


def test_a_row_type_compiles_at_most_a_dozen_programs_for_short_and_long_arrays_together():
    sources = source(1100, 3, 11), source(100, 3, 11)
    with compilations(at_least=1, at_most=12):
        for x in sources:
            use_every_way(lazyrows.iter(x))


@pytest.mark.parametrize("chunk_size", [None, 1, 3, 8, 13, 100])
def test_nothing_is_compiled_for_a_new_slice_tail_step_index_or_order_once_warm(chunk_size):
    x = source(613, 5)
    rows = lazyrows.iter(x, chunk_size=chunk_size)
    use_every_way(rows)
    with compilations(at_most=0):
        for tail in (*range(1, 20), 255, 256, 257, 300):
            assert len([*rows[-tail:], *rows[tail::-1], *rows[:tail][::-3]]) == tail + (tail + 1) + -(-tail // 3)
        for step in (2, 5, -4, 100):
            assert len(list(rows[::step])) == len(range(0, 613, abs(step)))
        for length in (2, 9, 50, 300):
            assert len(list(rows[[5, 612] * length])) == 2 * length
        assert len(list(rows[np.arange(613) % 5 == 2])) == 123
        assert all(rows[i].shape == (5,) for i in (0, 1, 2, 612, -613, 300, 301, np.int64(77)))
        use_every_way(lazyrows.iter(x, chunk_size=chunk_size))


def test_nothing_is_compiled_for_another_array_of_the_same_shape_or_by_building_views():
    use_every_way(lazyrows.iter(source(301, 6)))
    x, unseen = source(301, 6), source(299, 77)
    with compilations(at_most=0):
        use_every_way(lazyrows.iter(x))
        rows = lazyrows.iter(unseen)
        assert [len(view) for view in (rows[3:], rows[::-2], rows[[1, 2]], rows[np.arange(299) > 9])] == [
            296,
            150,
            2,
            289,
        ]
        assert (rows.element_spec.shape, repr(rows)) == ((77,), "RowView(299 rows of int32[77])")


def test_searching_compiles_nothing_more_once_warm():
    rows = lazyrows.iter(source(500, 4))
    assert rows.count(rows[3]) == 1
    wanted = [np.asarray(rows[i]) for i in (0, 77, 499)]
    with compilations(at_most=0):
        assert [rows.index(row) for row in wanted] == [0, 77, 499]
        assert [rows[::-1].index(row) for row in wanted] == [499, 422, 0]
        assert wanted[0] not in rows[1:]


def test_a_function_of_a_view_is_compiled_once_for_views_of_equal_order():
    traces = []

    @jax.jit
    def first_and_total(rows):
        traces.append(len(rows))
        return rows[0], rows.stack().sum(0)

    for x in (source(10, 2), source(10, 2) + 1):
        rows = lazyrows.iter(x)
        for view in (rows[2:8:2], rows[::2][1:4]):
            first, total = first_and_total(view)
            assert first.tolist() == x[2].tolist()
            assert total.tolist() == x[2:8:2].sum(0).tolist()
    assert traces == [3]
    first_and_total(rows[1:8:2])
    assert traces == [3, 4]


@pytest.fixture
def executed(monkeypatch) -> "tuple[Any, list[int]]":
    """The package, imported anew, and a list that grows by the number of outputs of each program it runs."""
    outputs: list[int] = []
    compiled = jax.jit

    def recording(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        program = compiled(function, **options)

        @wraps(function)
        def call(*args: Any) -> Any:
            made = program(*args)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(made)):
                outputs.append(len(jax.tree.leaves(made)))
            return made

        return call

    for name in [name for name in sys.modules if name.split(".")[0] == "lazyrows"]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as importing:
        importing.setattr(jax, "jit", recording)
        package = importlib.import_module("lazyrows")
    monkeypatch.setattr(jax, "jit", recording)  # for programs made when they are first needed
    return package, outputs


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 16, 100, 256, 1000])
@pytest.mark.parametrize("row", [(), (32,)], ids=["tiny", "small"])
def test_no_program_has_more_outputs_than_a_chunk_has_rows(executed, chunk_size, row):
    package, outputs = executed
    rows = package.iter(source(517, *row), chunk_size=chunk_size)
    assert len([*rows, *rows[::-1], *rows[::5], *rows[[3, 1] * 40]]) == 517 * 2 + 104 + 80
    assert all(rows[i].shape == row for i in range(30))
    assert sum(outputs) >= 517 * 2 + 104 + 80 + 30
    assert max(outputs) <= chunk_size


@pytest.mark.parametrize(
    "view", [slice(None), slice(None, None, -1), slice(3, -2, 2)], ids=["all", "reversed", "strided"]
)
@pytest.mark.parametrize("row", [(), (32,), (512,)], ids=["tiny", "small", "medium"])
@pytest.mark.parametrize("length", [129, 1000, 5003])
def test_a_pass_runs_a_small_fraction_of_the_rows_in_programs_of_few_outputs(executed, view, row, length):
    package, outputs = executed
    rows = package.iter(source(length, *row))[view]
    assert len(list(rows)) == len(rows)
    assert 0 < len(outputs) <= len(rows) / 6 + 4
    assert max(outputs) <= 16


def test_a_second_look_at_a_chunk_runs_no_program_for_every_row(executed):
    package, outputs = executed
    rows = package.iter(source(256, 32))
    assert all(rows[i].shape == (32,) for i in range(256))
    assert 0 < len(outputs) <= 256 / 6 + 4


def test_the_first_row_of_a_pass_runs_one_program(executed):
    package, outputs = executed
    rows = package.iter(source(5000, 32))
    assert outputs == []
    assert next(iter(rows)).shape == next(reversed(rows)).shape == (32,)
    assert outputs == [1, 1]
