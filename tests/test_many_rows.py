"""More rows than int32 can count: the right row, whichever way it is asked for.

The array takes 3 GB, so it is made once, in a process that ends with this file: this file run as a script.
"""

import resource
import subprocess
import sys
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

import lazyrows

LENGTH = 3 * 10**9
WRAP = 2**31
PERIOD = 125  # divides the length, and not a power of two: a position taken modulo 2³² shows


def expected(position: int) -> int:
    return position % LENGTH % PERIOD


def equals(rows: object, positions: object) -> bool:
    return [int(row) for row in rows] == [expected(position) for position in positions]


def check_rows(rows: "lazyrows.RowView[jax.Array]") -> None:
    assert len(rows) == LENGTH
    assert rows[0].dtype == np.int8
    assert equals(islice(rows, 300), range(300))
    assert equals(islice(reversed(rows), 300), range(-1, -301, -1))
    for position in (0, -1, -LENGTH, LENGTH - 1, WRAP - 2, WRAP - 1, WRAP, WRAP + 1, WRAP + 2, np.int64(WRAP + 7)):
        assert int(rows[position]) == expected(int(position))
    for start in (WRAP - 150, WRAP, LENGTH - 300, LENGTH - 5):
        assert equals(rows[start : start + 300], range(start, min(start + 300, LENGTH)))
        assert equals(rows[start : start - 300 : -1], range(start, start - 300, -1))
    assert equals(rows[:: LENGTH // 50], range(0, LENGTH, LENGTH // 50))
    places = [LENGTH - 1, 3, WRAP, -7, WRAP - 1, WRAP + 300] * 5
    assert equals(rows[places], places)
    assert equals(rows[WRAP - 9 : WRAP + 9].stack(), range(WRAP - 9, WRAP + 9))
    assert equals(rows[places].stack(), places)
    assert rows[WRAP + 4 : WRAP + 50].index(rows[WRAP + 10]) == 6


def main() -> None:
    x = jnp.tile(jnp.arange(PERIOD, dtype=jnp.int8), LENGTH // PERIOD)
    check_rows(lazyrows.iter(x))
    check_rows(lazyrows.iter(x, chunk_size=8, prefetch=0))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert resident < 10 * 10**9, resident


def test_rows_beyond_two_to_the_31_are_the_right_ones():
    run = subprocess.run([sys.executable, "-W", "error", __file__], capture_output=True, text=True, timeout=170)
    assert (run.returncode, run.stderr) == (0, "")


if __name__ == "__main__":
    main()
