"""Rows are where, and committed as, JAX would have them: by their source, the default device, or `device=`."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import lazyrows

LENGTH = 300


def source() -> jax.Array:
    return jnp.arange(LENGTH * 4).reshape(LENGTH, 4)


def some_of(rows: Any) -> list[Any]:
    """Rows made in every way there is."""
    passes = [next(iter(rows)), list(rows)[20], list(rows[::-1])[30], list(rows[::7])[9], list(rows[[7, 1] * 9])[11]]
    stacked = jax.tree.map(lambda array: array[0], rows[:2].stack())
    return [*passes, rows[0], rows[100], rows[101], rows[102], rows[-1], stacked]


FIRST = [0, 20, LENGTH - 31, 63, 1, 0, 100, 101, 102, LENGTH - 1, 0]


def values(rows: list[jax.Array]) -> list[int]:
    return [int(row[0]) // 4 for row in rows]


def test_rows_of_a_committed_array_are_committed_to_its_device():
    device = jax.devices()[3]
    rows = lazyrows.iter(jax.device_put(source(), device))
    for default in jax.devices()[:2]:
        with jax.default_device(default):
            made = some_of(rows)
        assert [(row.devices(), row.committed) for row in made] == [({device}, True)] * len(made)
        assert values(made) == FIRST


def test_rows_of_an_uncommitted_array_stay_uncommitted_and_follow_the_default_device():
    x = source()
    rows = lazyrows.iter(x)
    for device in (jax.devices()[0], jax.devices()[2], jax.devices()[5], jax.devices()[2]):
        with jax.default_device(device):
            made, plain = some_of(rows), x[5]
        assert [(row.devices(), row.committed) for row in made] == [(plain.devices(), plain.committed)] * len(made)
        assert plain.devices() == {device}
        assert values(made) == FIRST


@pytest.mark.parametrize("where", [lambda device: device, SingleDeviceSharding], ids=["device", "sharding"])
@pytest.mark.parametrize("given", ["uncommitted", "committed", "host"])
def test_the_device_option_says_where_rows_are_committed(where, given):
    device = jax.devices()[6]
    sources = {
        "committed": jax.device_put(source(), jax.devices()[1]),
        "uncommitted": source(),
        "host": np.asarray(source()),
    }
    rows = lazyrows.iter(sources[given], device=where(device))
    with jax.default_device(jax.devices()[4]):
        made = some_of(rows)
    assert [(row.devices(), row.committed) for row in made] == [({device}, True)] * len(made)
    assert {row.sharding for row in made[:-1]} == {rows.element_spec.sharding}
    assert values(made) == FIRST


def test_each_leaf_of_a_tree_keeps_its_device():
    devices = jax.devices()[2], jax.devices()[5]
    tree = {
        "two": jax.device_put(source(), devices[0]),
        "five": jax.device_put(source() + 1, devices[1]),
        "any": source(),
    }
    made = some_of(lazyrows.iter(tree))
    for name, device, committed in (
        ("two", devices[0], True),
        ("five", devices[1], True),
        ("any", jax.devices()[0], False),
    ):
        leaves = [row[name] for row in made[:-1]]
        assert [(leaf.devices(), leaf.committed) for leaf in leaves] == [({device}, committed)] * len(leaves)
    assert values([row["two"] for row in made[:-1]]) == FIRST[:-1]


def test_the_device_option_brings_a_tree_together():
    device = jax.devices()[7]
    tree = jax.device_put(source(), jax.devices()[2]), source(), np.asarray(source())
    made = some_of(lazyrows.iter(tree, device=device))[:-1]
    assert {leaf.sharding for row in made for leaf in row} == {SingleDeviceSharding(device)}
    assert [values(list(leaves)) for leaves in zip(*made)] == [FIRST[:-1]] * 3


@pytest.mark.parametrize("device", [0, 4])
def test_weak_types_and_shardings_are_as_the_element_spec_says(device):
    weak = jax.device_put(jnp.broadcast_to(jnp.asarray(2.0), (LENGTH, 4)), jax.devices()[device])
    strong = jax.device_put(source(), jax.devices()[device])
    assert weak.weak_type
    for x in (weak, strong):
        rows = lazyrows.iter(x)
        spec = rows.element_spec
        assert (spec.weak_type, spec.sharding) == (x.weak_type, x.sharding)
        assert {(row.weak_type, row.sharding) for row in some_of(rows)} == {(spec.weak_type, spec.sharding)}


def memory_kinds() -> list[str]:
    return [memory.kind for memory in jax.devices()[0].addressable_memories()]


def in_memory(kind):
    return SingleDeviceSharding(jax.devices()[3], memory_kind=kind)


DEFAULT_KIND = jax.devices()[3].default_memory().kind


@pytest.mark.parametrize("kind", memory_kinds())
@pytest.mark.parametrize("host", [False, True])
def test_rows_are_where_devices_compute_and_other_memory_is_refused_by_name(kind, host):
    x = jax.device_put(source(), in_memory(kind))
    if kind == DEFAULT_KIND:
        assert {row.sharding for row in some_of(lazyrows.iter(x))[:-1]} == {x.sharding}
    else:
        with pytest.raises(ValueError, match=f"in {kind} memory"):
            lazyrows.iter({"a": x})
        with pytest.raises(ValueError, match=f"memory that its devices compute in.*{kind}"):
            lazyrows.iter(np.asarray(source()) if host else source(), device=in_memory(kind))


class Sliced:
    """An array that is only sliced."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, window):
        return self.array[window]


AXIS_TYPES = [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit]
SPECS = [(), (None,), ("a",), (None, "b"), ("b", "a"), (("a", "b"), None)]
MATRICES = np.arange(300 * 8 * 4, dtype=np.float32).reshape(300, 8, 4)


def sharding(axis_type, spec):
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(axis_type,) * 2)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


@pytest.mark.parametrize("make", [np.asarray, Sliced, jnp.asarray], ids=["NumPy", "sliced", "one device"])
@pytest.mark.parametrize("axis_type", AXIS_TYPES)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_go_to_a_mesh(make, axis_type, spec):
    wanted = sharding(axis_type, spec)
    rows = lazyrows.iter(make(MATRICES), device=wanted)
    assert rows.element_spec.sharding == wanted
    made = [*rows, *rows[::-7], *rows[5:8], *(rows[i] for i in (0, 1, 2, 299))]
    expected = [*MATRICES, *MATRICES[::-7], *MATRICES[5:8], *MATRICES[[0, 1, 2, 299]]]
    assert {row.sharding for row in made} == {wanted}
    assert all(row.committed and np.array_equal(row, value) for row, value in zip(made, expected, strict=True))
    assert np.array_equal(rows[3:50].stack(), MATRICES[3:50])
    assert rows.index(MATRICES[77]) == 77
    assert rows.count(np.zeros((8, 4))) == 0


def test_rows_go_to_a_mesh_under_a_transfer_guard_and_one_at_a_time():
    rows = lazyrows.iter(MATRICES, device=sharding(AXIS_TYPES[0], ("a",)), chunk_size=1)
    with jax.transfer_guard("disallow"):
        assert {row.sharding for row in rows} == {rows.element_spec.sharding}


@pytest.mark.parametrize(("spec", "shape"), [(("a",), (9, 3)), (("a",), (9,)), ((None, None), (9, 3))])
def test_rows_that_a_sharding_does_not_fit_are_refused_by_name_at_once(spec, shape):
    wanted = sharding(AXIS_TYPES[0], spec)
    source = {"x": MATRICES[:9], "y": np.zeros(shape)}
    with pytest.raises(ValueError, match=r"of shape \(9.*\) at \['y'\]"):
        lazyrows.iter(source, device=wanted)
    with pytest.raises(ValueError, match=r"at \['y'\]"):
        lazyrows.iter(lazyrows.iter(source), device=wanted)


def test_a_view_with_rows_on_a_mesh_is_pickled_by_the_names_of_its_devices():
    rows = lazyrows.iter(MATRICES, device=sharding(AXIS_TYPES[1], ("a",)))
    again = pickle.loads(pickle.dumps(rows))
    assert again.element_spec == rows.element_spec
    assert again[7].sharding == rows.element_spec.sharding


def test_an_array_on_several_devices_is_refused_with_what_to_do():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("a",))
    spread = jax.device_put(jnp.arange(8), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a")))
    with pytest.raises(ValueError, match=r"at \['x'\]: it is on several devices.*device_put it on one"):
        lazyrows.iter({"x": spread})
