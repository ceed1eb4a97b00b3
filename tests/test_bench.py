"""What `python -m lazyrows` says, to people and to machines, and that what it times is the same work in every column.

How long anything takes is not looked at: only that every measurement is there, positive and consistent.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import lazyrows
from lazyrows import _bench
from lazyrows.__main__ import announce, header, main, rate_cell, scaled, table, time_cell, time_text

COLUMNS = ["jax", "numpy", "lazyrows"]
MEASURES = ["first", "all", "reversed", "random", "sequential", "new length"]
ONCE = _bench.Effort(processes=0, least=3, most=3, seconds=0, rows=4, file_bytes=100)
ABOUT = {"jax", "numpy", "python", "platform", "device_kind", "system"}


def run(folder, *arguments):
    """Run the command line from a folder that is not the package's, with warnings as errors."""
    path = os.pathsep.join([str(Path(lazyrows.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", "-m", "lazyrows", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, encoding="utf-8"
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    done = run(folder, "--quick", "--json", "timings.json")
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(done=done, found=json.loads((folder / "timings.json").read_text()))


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.arange(24, dtype=np.float32).reshape(6, 4))
    return path


def check_measurements(found):
    """Every column is there and positive, and the ratio is that of JAX to lazyrows."""
    for entry in found["measurements"]:
        assert list(entry) == ["case", "measure", "state", "elements", "seconds", "ratio"]
        assert list(entry["seconds"]) == COLUMNS
        assert all(seconds > 0 for seconds in entry["seconds"].values())
        assert entry["ratio"] == entry["seconds"]["jax"] / entry["seconds"]["lazyrows"]


def test_every_case_is_measured_uncompiled_and_compiled(quick):
    cases = ["small", "big", "wide"]
    uncompiled = {(case, measure, "uncompiled") for case in cases for measure in ["first", "all"]}
    compiled = {(case, measure, "compiled") for case in cases for measure in MEASURES}
    measured = [(m["case"], m["measure"], m["state"]) for m in quick.found["measurements"]]
    assert len(measured) == len(set(measured))
    assert set(measured) == uncompiled | compiled | {("keys", "split", "compiled")}


def test_the_json_says_what_was_measured_on_what(quick):
    assert list(quick.found) == ["version", "quick", "file", "environment", "measurements"]
    assert (quick.found["version"], quick.found["quick"], quick.found["file"]) == (1, True, None)
    assert set(quick.found["environment"]) == ABOUT
    assert quick.found["environment"]["jax"] == jax.__version__
    assert quick.found["environment"]["platform"] == jax.devices()[0].platform
    check_measurements(quick.found)


def test_elements_are_the_rows_that_were_taken(quick):
    elements = {(m["case"], m["measure"]): m["elements"] for m in quick.found["measurements"]}
    assert {elements[case, "first"] for case in ["small", "big", "wide"]} == {1}
    assert [elements[case, "all"] for case in ["small", "big", "wide"]] == [10, 10_000, 10_000]
    assert elements["small", "random"] == elements["small", "reversed"] == 10
    assert elements["big", "random"] == elements["big", "sequential"] == _bench.QUICK.rows


def test_the_table_shows_every_measurement_and_nothing_goes_to_stderr(quick):
    assert quick.done.stderr == ""
    shown = [line.split() for line in quick.done.stdout.splitlines()]
    for m in quick.found["measurements"]:
        line = [m["case"], *m["measure"].split(), str(m["elements"])]
        assert line in [found[: len(line)] for found in shown]
    assert f"JAX {jax.__version__}" in quick.done.stdout
    assert quick.done.stdout.count("JAX / lazyrows") == len(["uncompiled", "compiled"])


def test_a_file_is_measured_row_by_row(tmp_path, rows_file):
    done = run(tmp_path, rows_file, "--quick", "--json", "timings.json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "timings.json").read_text())
    assert found["file"] == {"path": str(rows_file), "rows": 6, "row_bytes": 16}
    measured = [(m["case"], m["measure"], m["elements"]) for m in found["measurements"]]
    assert measured == [("rows.npy", name, 1 if name == "first" else 6) for name in MEASURES[:4]]
    check_measurements(found)
    assert "6 rows of 16.0 B" in done.stdout
    assert "device_put / lazyrows" in done.stdout


def test_help_names_the_options(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert exit.value.code == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ["python -m lazyrows", "--json FILE", "--quick", "--help", ".npy"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"not an array", "magic string"),
        (b"", "magic string"),
        (np.float32(1), "0-d array"),
        (np.zeros((0, 3)), "shape is (0, 3)"),
        (np.array(["2020-01-01"], "M8[D]"), "no dtype datetime64"),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path, capsys, content, message):
    path = tmp_path / "file.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    check_refusal([str(path)], f"{path} has no rows to time: ", message, capsys)


@pytest.mark.parametrize("name", ["", "nowhere/timings.json"])
def test_a_json_file_that_cannot_be_written_is_refused_at_once(tmp_path, capsys, name):
    check_refusal(["--json", str(tmp_path / name)], "--json", "cannot write to", capsys)


def check_refusal(arguments, place, message, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert place in shown.err
    assert message in shown.err


def test_an_interrupt_exits_quietly(monkeypatch, capsys):
    def interrupted(effort, announce):
        yield _bench.Measurement("small", "first", "compiled", 1, dict.fromkeys(COLUMNS, 1.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(_bench, "measure_arrays", interrupted)
    assert main(["--quick"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("views", [_bench.VIEWS, _bench.FILE_VIEWS], ids=["array", "file"])
def test_every_column_takes_the_same_rows(name, views):
    x = np.arange(36, dtype=np.float32).reshape(9, 4)
    source = jax.numpy.asarray(x) if views is _bench.VIEWS else x
    measure = _bench.MEASURES[name]
    picks = measure.picks(9, 5)
    expected = x[::-1][picks] if name == "reversed" else x[picks]
    for view in views.values():
        np.testing.assert_array_equal(np.stack(measure.take(view, source, picks)), expected)


def test_every_column_splits_the_same_keys_one_after_the_other():
    key = jax.random.PRNGKey(0)
    first, _ = jax.random.split(key)
    for view in _bench.VIEWS.values():
        taken = np.stack(_bench.MEASURES["split"].take(view, key, range(2)))
        np.testing.assert_array_equal(taken, jax.random.split(first))


def test_a_thousand_keys_are_split_or_as_many_as_there_is_time_for():
    assert [len(_bench.MEASURES["split"].picks(2, most)) for most in (200, 2000)] == [200, 1000]


def lengths_made(measure):
    """The lengths of the arrays that a measure has made, in order."""
    made = []
    case = _bench.Case(lambda length: made.append(length) or np.zeros(length), 10, 3, [measure])
    (measurement,) = _bench._measure_case("case", case, dict.fromkeys(COLUMNS, iter), ONCE, str)
    assert list(measurement.seconds) == COLUMNS
    return made, measurement.elements


def test_a_new_length_is_never_one_that_was_used_before():
    made, elements = lengths_made("new length")
    assert made == [13] * 3 + [16] * 3 + [19] * 3
    assert elements == 16


def test_every_sample_has_an_array_of_its_own_and_the_first_round_is_extra():
    made, elements = lengths_made("all")
    assert made == [10] * (1 + ONCE.least) * len(COLUMNS)
    assert elements == 10


def test_lengths_of_the_cases_leave_new_remainders_of_a_hundred_to_jax():
    rests = [(10_000 + _bench.CASES["big"].step * number) % 100 for number in range(_bench.FULL.most + 1)]
    assert len(set(rests)) == len(rests)


def test_a_large_file_is_bounded_in_rows_and_in_bytes():
    def elements(array):
        return [m.elements for m in _bench.measure_file("file", array, ONCE, str) if m.measure == "all"]

    assert elements(np.zeros((1000, 1), np.int8)) == [10 * ONCE.rows]
    assert elements(np.zeros((1000, 20), np.int8)) == [ONCE.file_bytes // 20]
    assert elements(np.zeros((5, 1000), np.int8)) == [1]
    assert elements(np.zeros((5, 0), np.int8)) == [5]


def test_each_case_and_column_is_timed_in_fresh_processes_of_its_own(monkeypatch):
    started = []
    monkeypatch.setattr(_bench, "_in_fresh_process", lambda pairs: started.append(pairs) or [(1.0, 2.0)] * len(pairs))
    samples = list(_bench._uncompiled_samples(2, str))
    alone = [[f"{case}/{column}"] for column in ["jax", "lazyrows"] for case in ["big", "wide", "small"]]
    assert started == 2 * [["big/numpy", "wide/numpy", "small/numpy"], *alone]
    assert len(samples) == 2 * 9


def test_a_fresh_process_uses_no_compilation_cache(monkeypatch):
    given = {}

    def fake(command, env, **options):
        given.update(env)
        return SimpleNamespace(returncode=0, stdout='said before\n[["big/jax", [0.5, 1.5]]]\n')

    monkeypatch.setattr(_bench.subprocess, "run", fake)
    assert _bench._in_fresh_process(["big/jax"]) == [(0.5, 1.5)]
    assert given["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_a_fresh_process_times_what_it_is_asked_and_says_why_it_failed(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(lazyrows.__file__).parent.parent))
    times = _bench._in_fresh_process(["small/numpy", "small/lazyrows"])
    assert np.shape(times) == (2, 2)
    assert np.min(times) > 0
    with pytest.raises(RuntimeError, match=r"(?s)_bench other/jax failed.*KeyError: 'other'"):
        _bench._in_fresh_process(["other/jax"])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_line_and_only_on_a_terminal(monkeypatch):
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stderr", stream)
        announce("big: all")
        announce("")
    assert terminal.getvalue() == "\r\x1b[Kbig: all\r\x1b[K"
    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2e-9, "2.00 ns"),
        (9.994e-7, "999 ns"),
        (9.996e-7, "1.00 µs"),
        (1.234e-5, "12.3 µs"),
        (9.996e-5, "100 µs"),
        (0.0456, "45.6 ms"),
        (0.9996, "1.00 s"),
        (123.4, "123 s"),
    ],
)
def test_times_have_three_digits_and_a_fitting_unit(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 "), (999.4, "999 "), (999.6, "1.00 k"), (12_345, "12.3 k"), (5e6, "5.00 M"), (2e13, "20.0 T")],
)
def test_numbers_have_three_digits_and_a_decimal_prefix(value, text):
    assert scaled(value) == text


def test_cells_show_the_total_and_what_it_comes_to():
    assert time_cell(0.002, 1) == "2.00 ms"
    assert time_cell(0.002, 1000) == "2.00 ms (2.00 µs)"
    assert rate_cell(16)(0.5, 1000) == "500 ms (2.00 k/s, 32.0 kB/s)"


def test_the_table_is_aligned_with_a_heading_for_each_state():
    seconds = {"jax": 0.3, "numpy": 0.001, "lazyrows": 0.1}
    made = [_bench.Measurement("big", "all", state, 10, seconds) for state in ("uncompiled", "compiled")]
    lines = table(made, lambda seconds, elements: f"{seconds}", "JAX")
    assert lines == [
        "",
        "uncompiled       elements  JAX  NumPy  lazyrows  JAX / lazyrows",
        "big         all        10  0.3  0.001       0.1            3.00",
        "",
        "compiled         elements  JAX  NumPy  lazyrows  JAX / lazyrows",
        "big         all        10  0.3  0.001       0.1            3.00",
    ]


def test_the_header_names_versions_device_and_file():
    about = {name: name.upper() for name in ABOUT}
    assert header(about, None)[:2] == ["JAX JAX, NumPy NUMPY, Python PYTHON", "PLATFORM: DEVICE_KIND (SYSTEM)"]
    assert "f.npy: 7 rows of 4.00 kB" in header(about, {"path": "f.npy", "rows": 7, "row_bytes": 4000})
