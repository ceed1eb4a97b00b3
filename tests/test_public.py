"""What `import lazyrows` offers, and what merely importing it does not do."""

import inspect
import subprocess
import sys

import pytest

import lazyrows


def test_all_names_what_is_public_in_sorted_order():
    public = {
        name for name, value in vars(lazyrows).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert lazyrows.__all__ == sorted(public)


@pytest.mark.parametrize("name", lazyrows.__all__)
def test_a_public_object_is_documented_and_belongs_to_lazyrows(name):
    public = getattr(lazyrows, name)
    assert public.__module__ == "lazyrows"
    assert inspect.getdoc(public)


@pytest.mark.parametrize("name", [name for name, value in vars(lazyrows.RowView).items() if inspect.isroutine(value)])
def test_every_public_method_is_documented(name):
    assert name.startswith("_") or inspect.getdoc(getattr(lazyrows.RowView, name))


NEITHER_BACKEND_NOR_THREAD = """
import threading
import jax, numpy as np
import lazyrows
from jax.extend import backend
started = threading.active_count()
rows = lazyrows.iter({"x": np.zeros((5, 2)), "y": np.arange(5)})
repr(rows), len(rows), rows[::-1], rows[[1, 2]], rows.element_spec, iter(rows)
assert threading.active_count() == started
jax.config.update("jax_platforms", "no_such_platform")  # fails at the first use of a backend, were there none yet
try:
    rows[0]
except RuntimeError as error:
    assert "no_such_platform" in str(error)
else:
    raise AssertionError("the backend had been initialised")
"""


def test_a_view_of_host_arrays_starts_no_thread_and_no_backend():
    subprocess.run([sys.executable, "-W", "error", "-c", NEITHER_BACKEND_NOR_THREAD], check=True, timeout=120)
