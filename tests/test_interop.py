"""Rows of the real libraries' arrays: HDF5, Zarr and TensorStore, from the `interop` extra."""

import pickle
import threading

import numpy as np
import pytest

import lazyrows

ROWS = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)


def hdf5(path, chunks):
    h5py = pytest.importorskip("h5py", reason="the interop extra is not installed")
    file = h5py.File(path / "x.h5", "w")
    return file.create_dataset("x", data=ROWS, chunks=chunks and (chunks, 4))


def zarr_array(path, chunks, shards=None):
    zarr = pytest.importorskip("zarr", reason="the interop extra is not installed")
    stored = {"chunks": (chunks or 1000, 4), "shards": shards and (shards, 4)}
    array = zarr.create_array(str(path / "x.zarr"), shape=ROWS.shape, dtype=ROWS.dtype, **stored)
    array[:] = ROWS
    return array


def zarr_shards(path, chunks):
    return zarr_array(path, chunks or 100, 2 * (chunks or 100))


def tensorstore_array(path, chunks):
    tensorstore = pytest.importorskip("tensorstore", reason="the interop extra is not installed")
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunks or 1000, 4]}}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path / "x")}, "metadata": {"chunk_grid": grid}}
    spec["metadata"] |= {"shape": [1000, 4], "data_type": "float32"}
    array = tensorstore.open(spec, create=True).result()
    array[:] = ROWS
    return array


LIBRARIES = [hdf5, zarr_array, zarr_shards, tensorstore_array]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__)
def library(request):
    return request.param


@pytest.mark.parametrize("chunks", [None, 64])
@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1), slice(900, 10, -7), np.array([5, 999, 5, 64])])
def test_rows_equal_those_of_the_array_in_every_order(library, chunks, order, tmp_path):
    rows = lazyrows.iter(library(tmp_path, chunks))[order]
    expected = ROWS[order]
    assert rows.element_spec.shape == (4,)
    assert np.array_equal(np.array(list(rows)), expected)
    assert np.array_equal(rows.stack(), expected)
    assert all(np.array_equal(rows[i], expected[i]) for i in (0, 1, -1, 2))


def test_blocks_are_the_stored_chunks(library, tmp_path):
    sizes = set(pieces(lazyrows.iter(library(tmp_path, 64))))
    assert len(sizes) <= 2
    assert max(sizes) % 64 == 0


def pieces(rows):
    """How many rows each block of a pass has."""
    return [sum(map(len, groups)) for groups in rows._chunks(rows._order)]


def test_the_spec_is_known_before_anything_is_read(library, tmp_path):
    rows = lazyrows.iter({"x": library(tmp_path, 64)})
    assert repr(rows) == "RowView(1000 rows of {'x': float32[4]})"


def test_a_closed_hdf5_file_is_its_own_error_and_rows_delivered_stay(tmp_path):
    dataset = hdf5(tmp_path, 50)
    iterator = iter(lazyrows.iter(dataset, chunk_size=50))
    delivered = [next(iterator) for _ in range(10)]
    dataset.file.close()
    with pytest.raises(Exception, match=r"(?i)dataset|closed|identifier|handle"):
        delivered.extend(iterator)
    assert np.array_equal(np.array(delivered), ROWS[: len(delivered)])
    assert len(delivered) >= 50


def test_hdf5_text_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the interop extra is not installed")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        dataset = file.create_dataset("t", data=["a", "b"])
        with pytest.raises(TypeError, match="JAX has no dtype object"):
            lazyrows.iter(dataset)


def test_a_view_of_zarr_goes_to_another_process(tmp_path):
    rows = lazyrows.iter(zarr_array(tmp_path, 64))[::-1]
    next(iter(rows)), rows[3]
    again = pickle.loads(pickle.dumps(rows))
    assert np.array_equal(np.array(list(again)), ROWS[::-1])


def test_an_abandoned_pass_leaves_no_reader_behind(library, tmp_path):
    iterator = iter(lazyrows.iter(library(tmp_path, 64)))
    next(iterator), next(iterator)
    del iterator
    for thread in threading.enumerate():
        if thread.name == "lazyrows reader":
            thread.join(30)
            assert not thread.is_alive()
