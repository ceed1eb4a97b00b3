"""The timings that `python -m lazyrows` prints: the rows of an array taken by JAX, by NumPy and by lazyrows.

Every measure is one piece of code run on three views of the same rows, in turn, round by round. An array is made
anew and is ready before the clock starts; it stops when the rows are ready. "Uncompiled" is a fresh process, before
which only the array was made; "compiled" is this process, after a round that is not counted. A new length is
compiled but for that: other lengths of the same rows have been used, this one never. A result is a median.
"""

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, product
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import lazyrows

View = Callable[[Any], Any]
Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """How long each column took over the same rows: the median of its rounds."""

    case: str
    measure: str
    state: str
    elements: int
    seconds: "dict[str, float]"

    @property
    def ratio(self) -> float:
        """How many times as fast as JAX's own rows those of lazyrows are."""
        return self.seconds["jax"] / self.seconds["lazyrows"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often to repeat, and how many rows to take where each costs JAX a call of its own."""

    processes: int
    shared: bool  # whether all that is timed uncompiled shares one process, which is three times as quick
    least: int
    most: int
    seconds: float
    rows: int
    file_bytes: int


FULL = Effort(processes=3, shared=False, least=5, most=25, seconds=1.0, rows=2000, file_bytes=2**28)
QUICK = Effort(processes=1, shared=True, least=1, most=5, seconds=0.1, rows=300, file_bytes=2**25)


class Measure(NamedTuple):
    """Which rows, of how many and at most how many, and how they are taken from a view of an array."""

    picks: "Callable[[int, int], Sequence[int]]"
    take: "Callable[[View, Any, Sequence[int]], list[Any]]"
    new_lengths: bool = False


class Case(NamedTuple):
    """An array of a given length, and what is timed over its rows."""

    length: int
    make: "Callable[[int], Any]"
    measures: "Sequence[str]"


def _few(length: int, most: int) -> range:
    return range(min(length, most))


def _sample(length: int, most: int) -> list[int]:
    return random.Random(0).sample(range(length), min(length, most))


def _all(view: View, x: Any, picks: Sequence[int]) -> list[Any]:
    return list(view(x))


def _pick(view: View, x: Any, picks: Sequence[int]) -> list[Any]:
    rows = view(x)
    return [rows[i] for i in picks]


def _split(view: View, key: Any, picks: Sequence[int]) -> list[Any]:
    subkey = key
    for _ in picks:
        key, subkey = view(jax.random.split(key))
    return [key, subkey]


MEASURES = {
    "first": Measure(lambda length, most: range(1), lambda view, x, picks: [next(iter(view(x)))]),
    "all": Measure(lambda length, most: range(length), _all),
    "reversed": Measure(_few, lambda view, x, picks: list(islice(reversed(view(x)), len(picks)))),
    "random": Measure(_sample, _pick),
    "sequential": Measure(_few, _pick),
    "new length": Measure(lambda length, most: range(length), _all, new_lengths=True),
    "split": Measure(lambda length, most: range(1000), _split),
}

_EVERY = tuple(name for name in MEASURES if name != "split")
CASES = {
    "small": Case(10, lambda length: jnp.arange(length) + 1, _EVERY),
    "big": Case(10_000, lambda length: jnp.arange(length) + 1, _EVERY),
    "wide": Case(10_000, lambda length: jnp.ones((length, 128), jnp.float32), _EVERY),
    "keys": Case(2, lambda length: jax.random.PRNGKey(0), ("split",)),
}
_UNCOMPILED = ("small", "big", "wide")
VIEWS: "Mapping[str, View]" = {"jax": lambda x: x, "numpy": np.asarray, "lazyrows": lazyrows.iter}


@dataclass(frozen=True, slots=True)
class _Each(Sequence[Any]):
    """The rows of a mapped file, each made by a call of its own."""

    make: Callable[[Any], Any]
    array: NDArray[Any]

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        return self.make(self.array[index])


# a row of a mapped file is read when it is copied: NumPy's are, so that they are worth their bytes per second
FILE_VIEWS: "Mapping[str, View]" = {
    "jax": partial(_Each, jax.device_put),
    "numpy": partial(_Each, np.array),
    "lazyrows": lazyrows.iter,
}


def measure_arrays(effort: Effort, announce: Announce) -> Iterator[Measurement]:
    """Time the cases, uncompiled and then compiled.

    In this order, because a process that has taken an accelerator's memory leaves none for another.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    yield from _measure_uncompiled(effort, announce)
    for name, case in CASES.items():
        yield from _measure_case(name, case, VIEWS, effort, announce)


def measure_file(name: str, array: NDArray[Any], effort: Effort, announce: Announce) -> Iterator[Measurement]:
    """Time the first rows of a mapped file, as many as the effort has room for, compiled."""
    row_bytes = max(1, array.nbytes // len(array))
    length = min(len(array), 10 * effort.rows, max(1, effort.file_bytes // row_bytes))
    case = Case(length, lambda length: array[:length], ("first", "all", "reversed", "random"))
    return _measure_case(name, case, FILE_VIEWS, effort, announce)


def _measure_case(
    name: str, case: Case, views: Mapping[str, View], effort: Effort, announce: Announce
) -> Iterator[Measurement]:
    for measure in case.measures:
        announce(f"{name}: {measure}, compiled")
        elements, seconds = _measure(case, MEASURES[measure], views, effort)
        yield Measurement(name, measure, "compiled", elements, seconds)


def _measure(case: Case, measure: Measure, views: Mapping[str, View], effort: Effort) -> "tuple[int, dict[str, float]]":
    elements: list[int] = []
    samples: dict[str, list[float]] = {column: [] for column in views}
    for number in _rounds(effort):
        length = _new_length(case.length, number) if measure.new_lengths else case.length
        picks = measure.picks(length, effort.rows)
        elements.append(len(picks))
        for column, view in views.items():
            samples[column].append(_time(partial(measure.take, view), case.make(length), picks))
    return int(median(elements[1:])), {column: median(times[1:]) for column, times in samples.items()}


def _rounds(effort: Effort) -> Iterator[int]:
    """Number the rounds: one that compiles, then at least the least, and more for as long as there is time."""
    yield 0
    end = perf_counter() + effort.seconds
    for number in range(1, effort.most + 1):
        yield number
        if number >= effort.least and perf_counter() > end:
            return


def _new_length(length: int, number: int) -> int:
    # 17 and 100 have no common factor, so that JAX, which takes 100 rows at a time, has new remainders as well
    return length + 17 * (number + 1)


def _time(take: "Callable[[Any, Sequence[int]], list[Any]]", x: Any, picks: Sequence[int]) -> float:
    jax.block_until_ready(x)
    start = perf_counter()
    rows = take(x, picks)
    _wait(rows)
    return perf_counter() - start


def _wait(rows: list[Any]) -> None:
    if rows and isinstance(rows[0], jax.Array):
        jax.block_until_ready(rows)


def _measure_uncompiled(effort: Effort, announce: Announce) -> Iterator[Measurement]:
    samples: dict[str, list[list[float]]] = {}
    groups = _groups(effort.shared)
    for number, group in product(range(effort.processes), groups):
        announce(f"{', '.join(group)}, uncompiled ({number + 1} of {effort.processes})")
        for pair, times in zip(group, _in_fresh_process(group)):
            samples.setdefault(pair, []).append(times)
    for case, (place, measure) in product(_UNCOMPILED, enumerate(("first", "all"))):
        seconds = {column: median(times[place] for times in samples[f"{case}/{column}"]) for column in VIEWS}
        elements = len(MEASURES[measure].picks(CASES[case].length, effort.rows))
        yield Measurement(case, measure, "uncompiled", elements, seconds)


def _groups(shared: bool) -> list[list[str]]:
    """What shares a process: all, or else only NumPy's cases, which compile nothing."""
    columns = {column: [f"{case}/{column}" for case in _UNCOMPILED] for column in ("numpy", "lazyrows", "jax")}
    if shared:
        return [[pair for pairs in columns.values() for pair in pairs]]
    return [columns.pop("numpy"), *([pair] for pairs in columns.values() for pair in pairs)]


def _in_fresh_process(pairs: Sequence[str]) -> list[list[float]]:
    command = [sys.executable, "-m", "lazyrows._bench", *pairs]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def time_uncompiled(pairs: Iterable[str]) -> "Iterator[tuple[float, float]]":
    """Time each `case/column`: its first row, and then, counted from the same start, all of them."""
    for pair in pairs:
        case, column = pair.split("/")
        jax.clear_caches()
        x = jax.block_until_ready(CASES[case].make(CASES[case].length))
        start = perf_counter()
        rows = iter(VIEWS[column](x))
        first = [next(rows)]
        _wait(first)
        then = perf_counter()
        rest = list(rows)
        _wait(rest)
        yield then - start, perf_counter() - start


def environment() -> dict[str, str]:
    """What the timings depend on: the versions, and the device JAX uses by default."""
    (device,) = jnp.zeros(()).devices()
    return {
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": device.platform,
        "device_kind": device.device_kind,
        "system": platform.platform(),
    }


def as_json(measurements: Iterable[Measurement], **about: Any) -> str:
    """The measurements for machines: `{"version": 1, ..., "measurements": [...]}`, in seconds."""
    entries = [asdict(measurement) | {"ratio": measurement.ratio} for measurement in measurements]
    return json.dumps({"version": 1, **about, "measurements": entries}, indent=1)


if __name__ == "__main__":
    print(json.dumps(list(time_uncompiled(sys.argv[1:]))))
