"""Sources on the host: what is read, how often, by which thread, and what a read that fails leaves behind."""

import gc
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyrows

ROWS = np.arange(1000 * 3, dtype=np.float32).reshape(1000, 3)


class Recorder:
    """An array that is only sliced, upwards and by neighbours, as HDF5's must be; it remembers what was read."""

    def __init__(self, array=ROWS, chunks=None, fails=lambda start, stop: None):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads, self.threads, self.fails = [], set(), fails
        if chunks:
            self.chunks = (chunks, *array.shape[1:])

    def __getitem__(self, window):
        assert isinstance(window, slice)
        assert window.step in (None, 1)
        assert 0 <= window.start < window.stop <= self.shape[0]
        self.reads.append((window.start, window.stop))
        self.threads.add(threading.current_thread())
        self.fails(window.start, window.stop)
        return self.array[window]

    def rows_read(self):
        return [row for start, stop in self.reads for row in range(start, stop)]


def values(rows):
    return [np.asarray(row).tolist() for row in rows]


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "lazyrows reader"]


def wait_for_readers():
    for thread in readers():
        thread.join(30)
    return readers() == []


ORDERS = {
    "forward": slice(None),
    "reversed": slice(None, None, -1),
    "part": slice(13, 900),
    "few": slice(705, 710),
    "strided": slice(3, None, 7),
    "strided down": slice(900, 20, -13),
    "mask": np.arange(1000) % 3 == 0,
    "ascending": np.array([0, 1, 5, 99, 100, 101, 500, 999]),
    "shuffled": np.random.default_rng(0).permutation(1000)[:300],
}


@pytest.mark.parametrize("chunks", [None, 7, 100, 3000])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_rows_and_stack_are_those_of_the_array(order, chunks):
    rows = lazyrows.iter(Recorder(chunks=chunks))[order]
    assert values(rows) == ROWS[order].tolist()
    assert np.array_equal(rows.stack(), ROWS[order])


@pytest.mark.parametrize("chunks", [None, 7, 100, 3000])
@pytest.mark.parametrize("name", [name for name in ORDERS if name != "shuffled"])
def test_a_pass_reads_no_row_twice_nor_splits_what_is_stored_together(name, chunks):
    source = Recorder(chunks=chunks)
    list(lazyrows.iter(source)[ORDERS[name]])
    read = source.rows_read()
    assert len(read) == len(set(read))
    stored = [start // chunks for start, _ in source.reads] if chunks else []
    assert len(stored) == len(set(stored))


@given(start=st.integers(0, 1000), length=st.integers(0, 1000), chunks=st.sampled_from([None, 7, 100]))
def test_a_slice_reads_only_what_covers_it(start, length, chunks):
    source = Recorder(chunks=chunks)
    list(lazyrows.iter(source)[start : start + length])
    assert sorted(source.rows_read()) == list(range(start, min(start + length, 1000)))


def test_rows_beside_others_that_store_more_together_are_read_few_at_a_time():
    length = 4000
    images = Recorder(np.zeros((length, 4096), np.float32), chunks=8)
    labels = Recorder(np.zeros(length, np.int32), chunks=length)
    assert sum(1 for _ in lazyrows.iter({"image": images, "label": labels})) == length
    assert sorted(images.rows_read()) == list(range(length))
    assert all(start % 8 == 0 for start, _ in images.reads)
    assert max(stop - start for start, stop in images.reads) * 2**14 <= 2**22


def test_what_lies_between_the_rows_of_a_shuffle_is_not_read():
    source = Recorder(np.broadcast_to(np.float32(0), (10**6, 4096)))
    order = np.random.default_rng(0).permutation(10**6)[:300]
    list(lazyrows.iter(source)[order])
    assert len(source.rows_read()) < 310


def test_stacking_neighbours_is_one_read():
    source = Recorder(chunks=100)
    lazyrows.iter(source)[5:995].stack()
    assert source.reads == [(5, 995)]


def test_a_single_row_reads_itself_where_rows_are_stored_alone():
    source = Recorder()
    row = lazyrows.iter(source)[700]
    assert row.tolist() == ROWS[700].tolist()
    assert source.reads == [(700, 701)]


def test_single_rows_that_are_stored_together_are_read_together_and_once():
    source = Recorder(chunks=100)
    rows = lazyrows.iter(source)
    assert values(rows[i] for i in (710, 705, 799)) == ROWS[[710, 705, 799]].tolist()
    assert len(source.reads) == 1
    ((start, stop),) = source.reads
    assert (start % 100, stop % 100) == (0, 0)


def test_building_slicing_and_describing_a_view_reads_nothing():
    source = Recorder()
    rows = lazyrows.iter({"a": source, "b": ROWS})
    repr(rows), len(rows), rows.element_spec, rows[::-1], rows[[1, 2]], iter(rows)
    assert source.reads == []
    assert readers() == []


def test_reads_run_in_one_thread_that_ends_with_the_pass():
    source = Recorder()
    assert len(list(lazyrows.iter(source))) == 1000
    assert source.threads - {threading.main_thread()}
    assert len(source.threads - {threading.main_thread()}) == 1
    assert wait_for_readers()


def test_prefetch_0_reads_on_demand_and_starts_no_thread():
    source = Recorder()
    iterator = iter(lazyrows.iter(source, chunk_size=10, prefetch=0))
    for taken in range(1, 32):
        next(iterator)
        assert len(source.rows_read()) < taken + 10
    assert source.threads == {threading.main_thread()}


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_no_more_is_read_ahead_than_prefetch_allows(prefetch):
    source = Recorder()
    iterator = iter(lazyrows.iter(source, chunk_size=10, prefetch=prefetch))
    for _ in range(50):
        next(iterator)
    del iterator
    assert wait_for_readers()
    assert len(source.rows_read()) <= 50 + 10 * (prefetch + 1)


@pytest.mark.parametrize("end", ["break", "drop", "error"])
def test_the_thread_ends_with_an_abandoned_iterator(end):
    iterator = iter(lazyrows.iter(Recorder(), chunk_size=10))
    next(iterator), next(iterator)
    assert len(readers()) == 1
    if end == "error":
        with pytest.raises(ZeroDivisionError):
            next(1 // 0 for row in iterator)
    del iterator
    assert wait_for_readers()


def test_where_no_thread_can_start_reading_goes_on_without(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    source = Recorder()
    assert values(lazyrows.iter(source)) == ROWS.tolist()
    assert source.threads == {threading.main_thread()}


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, IndexError, StopIteration, KeyError])
@pytest.mark.parametrize("at", [0, 1, 255, 500, 999])
@pytest.mark.parametrize("chunks", [None, 50])
def test_a_read_that_fails_comes_after_the_rows_before_it_and_can_be_tried_again(error, at, chunks):
    broken = [True]

    def fails(start, stop):
        if broken[0] and start <= at < stop:
            raise error("disk on fire")

    source = Recorder(chunks=chunks, fails=fails)
    rows = lazyrows.iter(source)
    delivered = []
    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected) as caught:
        delivered.extend(rows)
    first_lost = next(start for start, stop in source.reads if start <= at < stop)
    assert values(delivered) == ROWS[:first_lost].tolist()
    original = caught.value.__cause__ if error is StopIteration else caught.value
    assert original.args == ("disk on fire",)
    assert original.__traceback__.tb_next is not None
    broken[0] = False
    assert values(rows) == ROWS.tolist()
    assert wait_for_readers()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_failed_read_keeps_no_block_alive(prefetch):
    def fails(start, stop):
        if stop > 500:
            raise Broken

    rows = lazyrows.iter(Recorder(fails=fails), prefetch=prefetch)
    list(rows[:400])  # the kept device scalars
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    gc.disable()
    try:
        with pytest.raises(Broken):
            list(rows)
        assert wait_for_readers()
        assert sum(array.nbytes for array in jax.live_arrays()) <= before
    finally:
        gc.enable()


def test_an_iterator_that_failed_has_nothing_left():
    def fails(start, stop):
        if stop > 500:
            raise Broken

    iterator = iter(lazyrows.iter(Recorder(fails=fails)))
    with pytest.raises(Broken):
        list(iterator)
    assert iterator.__length_hint__() == 0


def test_rows_kept_of_a_memmap_follow_the_config_they_are_asked_under(tmp_path):
    np.save(tmp_path / "x.npy", ROWS.astype(np.float64))
    rows = lazyrows.iter(np.load(tmp_path / "x.npy", mmap_mode="r"))
    enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable_x64(True):
        assert {rows[i].dtype for i in (20, 21, 22)} == {np.dtype("float64")}
    assert rows[23].dtype == rows.element_spec.dtype == np.dtype("float32")
    with jax.default_device(jax.devices()[5]):
        assert rows[24].devices() == {jax.devices()[5]}


def test_of_a_shard_only_the_chunks_wanted_are_read():
    source = Recorder(chunks=10)
    source.shards = (500, 3)
    lazyrows.iter(source, chunk_size=20)[300]
    assert source.reads == [(300, 320)]


def test_after_an_error_an_iterator_is_exhausted():
    def fails(start, stop):
        raise Broken

    iterator = iter(lazyrows.iter(Recorder(fails=fails)))
    with pytest.raises(Broken):
        next(iterator)
    assert list(iterator) == []


@pytest.mark.parametrize("given", [ROWS[:, :2], ROWS.astype(np.float64), ROWS.astype(np.int32), ROWS[:500]])
def test_a_source_that_is_not_what_it_declared_is_an_error_that_says_so(given):
    source = Recorder()
    source.array = given
    with pytest.raises(ValueError, match="declared float32 of shape"):
        list(lazyrows.iter(source, chunk_size=600))


def test_an_array_in_memory_shows_what_was_written_to_it_since_and_delivered_rows_do_not():
    array = ROWS.copy()
    rows = lazyrows.iter(array)
    before = [*rows[:300], rows[0], rows[1], rows[2]]
    kept = values(before)
    array[:] = -1
    assert values(before) == kept
    assert values([rows[0], rows[1], *rows[5:9]]) == [[-1, -1, -1]] * 6


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, np.bool_, jnp.bfloat16])
@pytest.mark.parametrize("offset", [0, 1, 8, 64])
def test_rows_never_alias_memory_whatever_its_alignment(dtype, offset):
    array = np.zeros(4096 * 8 + offset, np.uint8)[offset:].view(dtype).reshape(64, -1)
    rows = [*lazyrows.iter(array), *[lazyrows.iter(array)[i] for i in range(64)], *lazyrows.iter(array, chunk_size=1)]
    array.view(np.uint8)[:] = 1
    assert not any(np.asarray(row).astype(bool).any() for row in rows)


def test_a_memmap_is_read_and_a_later_write_changes_no_row(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    rows = list(lazyrows.iter(mapped))
    mapped[:] = 0
    assert values(rows) == ROWS.tolist()
    assert type(rows[0]) is type(jnp.zeros(3))


def test_float64_is_canonicalised_as_jax_does_and_the_spec_says_so_first():
    source = Recorder(ROWS.astype(np.float64))
    rows = lazyrows.iter(source)
    assert rows.element_spec.dtype == jnp.float32
    assert source.reads == []
    assert {row.dtype for row in [rows[0], *rows]} == {jnp.dtype("float32")}


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">c8"])
def test_foreign_byte_order_is_swapped(dtype):
    source = Recorder(ROWS.astype(dtype))
    assert values(lazyrows.iter(source)) == ROWS.astype(dtype).tolist()


def test_rows_go_to_the_device_asked_for():
    device = jax.devices()[3]
    rows = lazyrows.iter(Recorder(), device=device)
    assert rows.element_spec.sharding.device_set == {device}
    assert {row.device for row in [rows[0], rows[1], *rows[:40], rows.stack()]} == {device}


def test_a_tree_may_have_leaves_on_the_host_and_on_a_device():
    source = Recorder(chunks=100)
    rows = lazyrows.iter({"host": source, "device": jnp.arange(1000), "view": lazyrows.iter(ROWS)[::-1]})
    assert len(rows) == 1000
    for i, row in [(0, rows[0]), (999, rows[999]), *enumerate(rows)]:
        assert np.array_equal(row["host"], ROWS[i])
        assert int(row["device"]) == i
        assert np.array_equal(row["view"], ROWS[999 - i])


def test_two_iterators_and_several_threads_share_a_view():
    rows = lazyrows.iter(Recorder(chunks=7))
    assert [np.array_equal(a, b) for a, b in zip(rows, rows[::-1][::-1])] == [True] * 1000
    found = {}

    def take(number):
        found[number] = values(rows) if number % 2 else values(rows[i] for i in range(0, 1000, 9))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == (ROWS if number % 2 else ROWS[::9]).tolist() for number in range(4))


def test_no_jax_is_called_in_the_reader_thread(monkeypatch):
    callers = set()
    device_put = jax.device_put

    def recording(*args, **kwargs):
        callers.add(threading.current_thread())
        return device_put(*args, **kwargs)

    monkeypatch.setattr(jax, "device_put", recording)
    list(lazyrows.iter(Recorder()))
    assert callers == {threading.main_thread()}


def test_a_view_of_a_memmap_is_pickled_without_what_it_has_read(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    rows = lazyrows.iter(np.load(tmp_path / "x.npy", mmap_mode="r"))[::-1]
    rows[3], rows[4], next(iter(rows))
    again = pickle.loads(pickle.dumps(rows))
    assert values(again) == ROWS[::-1].tolist()


def test_dropping_the_view_and_its_iterators_drops_the_source():
    source = Recorder()
    rows = lazyrows.iter(source)
    iterator = iter(rows)
    next(iterator), next(iterator), rows[3], rows[4]
    del rows, iterator
    assert wait_for_readers()
    holders = [holder for holder in gc.get_referrers(source) if not isinstance(holder, dict) and holder is not source]
    assert not [holder for holder in holders if type(holder).__module__.startswith("lazyrows")]


BLOCKED = """
import threading
import numpy as np
import lazyrows

class Blocked:
    shape, dtype = (1000, 3), np.dtype("float32")

    def __getitem__(self, window):
        if window.start > 300:
            reading.set()
            threading.Event().wait()
        return np.zeros((window.stop - window.start, 3), np.float32)

reading = threading.Event()
iterator = iter(lazyrows.iter(Blocked(), chunk_size=100))
for _ in range(250):
    next(iterator)
reading.wait()
"""


def test_the_interpreter_exits_while_a_read_is_blocked():
    subprocess.run([sys.executable, "-W", "error", "-c", BLOCKED], check=True, timeout=120)


FORKED = """
import os, sys, warnings
import numpy as np
import lazyrows

rows = lazyrows.iter(np.arange(1000.0, dtype=np.float32))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert [float(row) for row in rows] == list(range(1000))
"""


def test_a_view_made_before_a_fork_works_in_the_child():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)
