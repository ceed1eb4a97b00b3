"""The timings that `python -m lazyrows` prints: the rows of an array taken by JAX, by NumPy and by lazyrows.

Every measure is one piece of code run on three views of the same rows, in turn, round by round. An array is made
anew and is ready before the clock starts; it stops when the rows are ready. "Uncompiled" is a process in which only
the array was made before; "compiled" is this one, after a round that is not counted. A new length is in between:
other lengths of the same rows were used before, this one never. A result is a median.
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
from statistics import median, median_low
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

    processes: int  # for what is timed uncompiled; with none, this process serves, while it is still fresh
    least: int
    most: int
    seconds: float
    rows: int
    file_bytes: int


FULL = Effort(processes=3, least=5, most=25, seconds=1.0, rows=2000, file_bytes=2**28)
QUICK = Effort(processes=0, least=1, most=5, seconds=0.1, rows=200, file_bytes=2**25)


class Measure(NamedTuple):
    """Which rows, of how many and at most how many, and how they are taken from a view of an array."""

    picks: "Callable[[int, int], Sequence[int]]"
    take: "Callable[[View, Any, Sequence[int]], list[Any]]"
    new_lengths: bool = False


class Case(NamedTuple):
    """How to make an array, its length, how much longer each new one is, and what is timed over its rows."""

    make: "Callable[[int], Any]"
    length: int
    step: int
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
    "split": Measure(lambda length, most: range(min(1000, most)), _split),
}

_EVERY = ("first", "all", "reversed", "random", "sequential", "new length")
# JAX takes 100 rows at a time and then the rest: in steps of 41 the rest is new too, and half of them on average
CASES = {
    "small": Case(lambda length: jnp.arange(length) + 1, 10, 1, _EVERY),
    "big": Case(lambda length: jnp.arange(length) + 1, 10_000, 41, _EVERY),
    "wide": Case(lambda length: jnp.ones((length, 128), jnp.float32), 10_000, 41, _EVERY),
    "keys": Case(lambda length: jax.random.PRNGKey(0), 2, 0, ("split",)),
}
_UNCOMPILED = ("big", "wide", "small")
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
    case = Case(lambda length: array[:length], length, 0, ("first", "all", "reversed", "random"))
    return _measure_case(name, case, FILE_VIEWS, effort, announce)


def _measure_case(
    name: str, case: Case, views: Mapping[str, View], effort: Effort, announce: Announce
) -> Iterator[Measurement]:
    for measure in case.measures:
        announce(f"{name}: {measure}, compiled")
        elements, seconds = _measure(case, MEASURES[measure], views, effort)
        yield Measurement(name, measure, "compiled", elements, seconds)


def _measure(case: Case, measure: Measure, views: Mapping[str, View], effort: Effort) -> "tuple[int, dict[str, float]]":
    if not measure.new_lengths:
        _round(case, measure, views, effort, 0)
    rounds = [_round(case, measure, views, effort, number) for number in _numbers(effort)]
    elements = median_low(count for count, _ in rounds)
    return elements, {column: median(seconds[column] for _, seconds in rounds) for column in views}


def _round(
    case: Case, measure: Measure, views: Mapping[str, View], effort: Effort, number: int
) -> "tuple[int, dict[str, float]]":
    length = case.length + case.step * number if measure.new_lengths else case.length
    picks = measure.picks(length, effort.rows)
    takes = {column: partial(measure.take, view) for column, view in views.items()}
    return len(picks), {column: _time(take, case.make(length), picks) for column, take in takes.items()}


def _numbers(effort: Effort) -> Iterator[int]:
    """Number the rounds from 1: at least the least, and more for as long as there is time."""
    end = perf_counter() + effort.seconds
    for number in range(1, effort.most + 1):
        yield number
        if number >= effort.least and perf_counter() > end:
            return


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
    samples: dict[str, list[tuple[float, float]]] = {}
    for pair, times in _uncompiled_samples(effort.processes, announce):
        samples.setdefault(pair, []).append(times)
    for case, (place, measure) in product(_UNCOMPILED, enumerate(("first", "all"))):
        seconds = {column: median(times[place] for times in samples[f"{case}/{column}"]) for column in VIEWS}
        elements = len(MEASURES[measure].picks(CASES[case].length, 0))
        yield Measurement(case, measure, "uncompiled", elements, seconds)


def _uncompiled_samples(count: int, announce: Announce) -> "Iterator[tuple[str, tuple[float, float]]]":
    """Time each case and column `count` times, each time in a fresh process."""
    groups = _groups()
    if not count:
        announce("uncompiled, in this process")
        yield from time_uncompiled(pair for group in groups for pair in group)
    for number, group in product(range(count), groups):
        announce(f"{', '.join(group)}, uncompiled ({number + 1} of {count})")
        yield from zip(group, _in_fresh_process(group))


def _groups() -> list[list[str]]:
    """What is timed together in one process: each case and column alone, but NumPy's, which compile nothing."""
    pairs = {column: [f"{case}/{column}" for case in _UNCOMPILED] for column in VIEWS}
    return [pairs.pop("numpy"), *([pair] for alone in pairs.values() for pair in alone)]


def _in_fresh_process(pairs: Sequence[str]) -> "list[tuple[float, float]]":
    command = [sys.executable, "-m", "lazyrows._bench", *pairs]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return [(first, every) for _, (first, every) in json.loads(done.stdout.splitlines()[-1])]


def time_uncompiled(pairs: Iterable[str]) -> "Iterator[tuple[str, tuple[float, float]]]":
    """Time each `case/column`: its first row, and then, counted from the same start, all of them."""
    for pair in pairs:
        case, column = pair.split("/")
        x = jax.block_until_ready(CASES[case].make(CASES[case].length))
        yield pair, _first_and_all(VIEWS[column], x)


def _first_and_all(view: View, x: Any) -> "tuple[float, float]":
    start = perf_counter()
    rows = iter(view(x))
    first = [next(rows)]
    _wait(first)
    then = perf_counter()
    rest = list(rows)
    _wait(rest)
    return then - start, perf_counter() - start


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
