"""The command line of the timings: `python -m lazyrows`."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lazyrows
from lazyrows import _bench
from lazyrows._bench import Measurement

DESCRIPTION = """Time the rows of arrays on the default device, as JAX's own iteration, NumPy and lazyrows make them.

Without a file: the first row and all rows, uncompiled (each in a fresh process) and compiled, then reversed, by random
and by sequential index, of lengths never seen before, and keys split and unpacked. With a file: its rows, where JAX's
are made by jax.device_put one by one."""
EPILOG = """The JSON is {"version": 1, "quick", "file", "environment", "measurements": [{"case", "measure", "state",
"elements", "seconds": {"jax", "numpy", "lazyrows"}, "ratio"}]}; the ratio is that of jax to lazyrows, so above 1 means
that lazyrows is faster."""

QUICK = "fewer repeats, all in one process: under 20 s instead of about two minutes"


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the timings and print them as a table; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except KeyboardInterrupt:
        return 130
    finally:
        announce("")
    return 0


def _run(options: argparse.Namespace) -> None:
    effort = _bench.QUICK if options.quick else _bench.FULL
    if options.file is None:
        file, baseline, cell = None, "JAX", time_cell
        made = _bench.measure_arrays(effort, announce)
    else:
        path, array = options.file
        row_bytes = array.nbytes // len(array)
        file = {"path": str(path), "rows": len(array), "row_bytes": row_bytes}
        baseline, cell = "device_put", rate_cell(row_bytes)
        made = _bench.measure_file(path.name, array, effort, announce)
    measurements, about = list(made), _bench.environment()
    announce("")
    print("\n".join([*header(about, file), *table(measurements, cell, baseline)]))
    if options.json:
        options.json.write_text(_bench.as_json(measurements, quick=options.quick, file=file, environment=about))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lazyrows", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("file", nargs="?", type=_npy, help="a .npy file whose rows to time")
    parser.add_argument("--json", metavar="FILE", type=_writable, help="write every measurement to FILE")
    parser.add_argument("--quick", action="store_true", help=QUICK)
    return parser


def _npy(text: str) -> "tuple[Path, NDArray[Any]]":
    try:
        array = np.lib.format.open_memmap(text, mode="r")
        rows = len(lazyrows.iter(array))
    except (OSError, ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{text} has no rows to time: {error}") from error
    if not rows:
        raise argparse.ArgumentTypeError(f"{text} has no rows to time: its shape is {array.shape}")
    return Path(text), array


def _writable(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write to {text}")
    return path


def announce(text: str) -> None:
    """Show what is being done in one line, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def header(about: "dict[str, str]", file: "dict[str, Any] | None") -> list[str]:
    """What was measured, and on what."""
    lines = [
        f"JAX {about['jax']}, NumPy {about['numpy']}, Python {about['python']}",
        f"{about['platform']}: {about['device_kind']} ({about['system']})",
    ]
    if file is None:
        return [*lines, "In brackets: the time per element."]
    about_file = f"{file['path']}: {file['rows']} rows of {bytes_text(file['row_bytes'])}"
    return [*lines, about_file, "In brackets: rows and bytes per second."]


Cell = Callable[[float, int], str]


def table(measurements: Iterable[Measurement], cell: Cell, baseline: str) -> list[str]:
    """The measurements as aligned lines, under a heading for each state."""
    titles = ["", "elements", baseline, "NumPy", "lazyrows", f"{baseline} / lazyrows"]
    parts: dict[str, list[list[str]]] = {}
    for m in measurements:
        parts.setdefault(m.state, [[m.state, *titles]]).append(_line(m, cell))
    widths = [max(map(len, column)) for column in zip(*(line for part in parts.values() for line in part))]
    return [text for part in parts.values() for text in ["", *(_aligned(line, widths) for line in part)]]


def _line(m: Measurement, cell: Cell) -> list[str]:
    cells = [cell(m.seconds[column], m.elements) for column in ("jax", "numpy", "lazyrows")]
    return [m.case, m.measure, str(m.elements), *cells, _digits(m.ratio)]


def _aligned(row: "Sequence[str]", widths: "Sequence[int]") -> str:
    """Two columns of names, then numbers."""
    names = [text.ljust(width) for text, width in zip(row[:2], widths)]
    return "  ".join([*names, *(text.rjust(width) for text, width in zip(row[2:], widths[2:]))]).rstrip()


def time_cell(seconds: float, elements: int) -> str:
    """The total, and the time per element where there are several."""
    each = f" ({time_text(seconds / elements)})" if elements > 1 else ""
    return time_text(seconds) + each


def rate_cell(row_bytes: int) -> Cell:
    """How to show the total, with rows and bytes per second, for rows of a size."""

    def cell(seconds: float, elements: int) -> str:
        rate = elements / seconds
        return f"{time_text(seconds)} ({scaled(rate)}/s, {bytes_text(rate * row_bytes)}/s)"

    return cell


def time_text(seconds: float) -> str:
    """A time to three digits, in ns, µs, ms or s."""
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{_digits(seconds * scale)} {unit}"
    return f"{_digits(seconds)} s"


def bytes_text(count: float) -> str:
    """A number of bytes to three digits, in decimal units."""
    return f"{scaled(count)}B"


def scaled(value: float) -> str:
    """A number to three digits and its decimal prefix."""
    prefixes = ["T", "G", "M", "k", ""]
    while value >= 999.5 and len(prefixes) > 1:
        value, _ = value / 1000, prefixes.pop()
    return f"{_digits(value)} {prefixes[-1]}"


def _digits(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


if __name__ == "__main__":
    sys.exit(main())
