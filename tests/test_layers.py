"""The house has one direction: a file imports only files below it, and only what the package may depend on."""

import ast
import sys
from pathlib import Path

import pytest

import lazyrows

PACKAGE = Path(lazyrows.__file__).parent

# bottom to top
HOUSE = [
    "_orders",
    "_kernels",
    "_prefetch",
    "_sources._protocols",
    "_sources._device",
    "_sources._traced",
    "_sources._host",
    "_sources._trees",
    "_sources",
    "_options",
    "_matching",
    "_view",
    "",
    "_bench",
    "__main__",
]
WITHOUT_JAX = {"_orders", "_prefetch"}


def room(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


ROOMS = {room(path): path for path in PACKAGE.rglob("*.py")}


def imports(path):
    """The absolute names of the modules a file imports, `from package import module` included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if name.removeprefix("lazyrows.") in ROOMS}
            found |= modules or {node.module}
    return found


def rooms_imported(path):
    ours = {name for name in imports(path) if name.split(".")[0] == "lazyrows"}
    return {name.removeprefix("lazyrows").removeprefix(".") for name in ours}


def test_every_file_has_its_place_in_the_house():
    assert sorted(ROOMS) == sorted(HOUSE)


@pytest.mark.parametrize("name", HOUSE)
def test_a_file_imports_only_files_below_it(name):
    below = set(HOUSE[: HOUSE.index(name)])
    assert rooms_imported(ROOMS[name]) <= below


@pytest.mark.parametrize("name", HOUSE)
def test_a_file_imports_only_jax_numpy_and_the_standard_library(name):
    outside = {module.split(".")[0] for module in imports(ROOMS[name])} - {"lazyrows"} - set(sys.stdlib_module_names)
    assert outside <= ({"numpy"} if name in WITHOUT_JAX else {"numpy", "jax"})


@pytest.mark.parametrize("name", HOUSE)
def test_a_file_uses_no_private_module_of_jax(name):
    tree = ast.parse(ROOMS[name].read_text())
    private = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "_src"]
    assert not private
    assert not [module for module in imports(ROOMS[name]) if "._" in module and not module.startswith("lazyrows.")]


@pytest.mark.parametrize("name", HOUSE)
def test_a_file_says_what_it_is_and_stays_short(name):
    text = ROOMS[name].read_text()
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 350
