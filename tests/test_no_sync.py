"""Nothing waits for the source's value, and nothing is transferred without leave.

Each scenario has a process of its own, this file run as a script: the value of its source takes minutes to compute, so
what waits for it never comes back; and nothing is compiled or cached when it starts.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import lazyrows

LENGTH = 10000
SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


@jax.jit
def slow(x: jax.Array) -> jax.Array:
    """`x` plus 10⁸ additions to all of it: some minutes, far more than any scenario needs."""
    return lax.fori_loop(0, 10**8, lambda step, total: total + step % 3, x)


def pending() -> jax.Array:
    x = slow(jnp.arange(LENGTH))
    assert not x.is_ready()
    return x


@scenario
def forty_rows_forward_and_in_reverse() -> None:
    x = pending()
    rows = lazyrows.iter(x)
    iterators = iter(rows), reversed(rows)
    made = [next(iterator) for iterator in iterators for _ in range(40)]
    assert not any(array.is_ready() for array in (x, *made))


@scenario
def indexing_and_unpacking() -> None:
    nine = jnp.array(9)
    x = pending()
    rows = lazyrows.iter(x)
    made = [rows[i] for i in (0, -1, 5000, 5001, 5002, np.int64(7), np.array(8), nine)]
    first, second, *others = lazyrows.iter(x[:40].reshape(10, 4))
    key, subkey = lazyrows.iter(jax.random.split(jax.random.key(x[0])))
    made += [first, second, *others, jax.random.key_data(key), jax.random.key_data(subkey)]
    assert not any(array.is_ready() for array in (x, *made))


@scenario
def slices_masks_and_index_arrays() -> None:
    places = jnp.array([3, 1, 2])
    x = pending()
    rows = lazyrows.iter(x)
    mask = np.arange(LENGTH) % 2 == 1
    views = [rows[100:9000:7], rows[::-3], rows[[9, 5, 2] * 20], rows[mask], rows[places]]
    made = [row for view in views for row in (next(iter(view)), view[2])]
    made += [row for _, row in zip(range(20), views[2])]
    assert not any(array.is_ready() for array in (x, *made))


@scenario
def stacks_trees_and_descriptions() -> None:
    labels = jnp.arange(LENGTH)
    x = pending()
    rows = lazyrows.iter({"label": labels, "value": x})
    assert repr(rows) == "RowView(10000 rows of {'label': int32[], 'value': int32[]})"
    assert rows.element_spec["value"].sharding == x.sharding
    made = [row for _, row in zip(range(10), rows)]
    made += [rows[-1], rows[5000], rows.stack(), rows[::-2].stack(), rows[[4, 1]].stack()]
    made += [{"value": jnp.asarray(lazyrows.iter(x)[:3])}]
    assert not any(array.is_ready() for array in (x, *(row["value"] for row in made)))


@scenario
def guarded() -> None:
    """Once cold and once warm."""
    x, key = jnp.arange(3000).reshape(1000, 3), jax.random.split(jax.random.key(0), 20)
    host = np.arange(2000.0).reshape(1000, 2)
    with jax.transfer_guard("disallow"):
        made = [every_operation(source) for source in (x, key, host, {"x": x, "host": host}) for _ in range(2)]
    assert all(rows == 13 + 9 + 8 + 4 for rows in made)
    assert [int(row[0]) for row in lazyrows.iter(x)[[7, 3]]] == [21, 9]


def every_operation(source: object) -> int:
    rows = lazyrows.iter(source, chunk_size=16)
    some = rows[1:20]
    made = [*some[6:], *reversed(some[1:10]), *some[::-1][::2][:8], *some[[5, 2, 2, -9]]]
    assert all(jax.tree.leaves(rows[i]) for i in (0, -1, 3, 4, np.int32(2)))
    assert jax.tree.leaves(some.stack())
    assert jax.tree.leaves(some[[0, 1]].stack())
    return len(made)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_waits_and_nothing_is_transferred_without_leave(name: str) -> None:
    run = subprocess.run([sys.executable, "-W", "error", __file__, name], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


if __name__ == "__main__":
    failed = 1
    try:
        SCENARIOS[sys.argv[1]]()
        failed = 0
    except BaseException:
        traceback.print_exc()
    os._exit(failed)  # at once, whatever is still being computed
