"""Every example in README, docs and docstrings runs and prints what it says; links between pages lead somewhere."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lazyrows

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = {"jax": jax, "jnp": jnp, "np": np, "lazyrows": lazyrows}
MODULES = [module.name for module in pkgutil.walk_packages(lazyrows.__path__, "lazyrows.")]


def run(test):
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    result = runner.run(test)
    assert result.failed == 0
    return result.attempted


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_turn(page):
    examples = "\n".join(blocks(page))
    test = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    assert run(test) == examples.count(">>> ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_python_that_is_not_an_example(page):
    assert all(block.startswith(">>> ") for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_examples_of_docstrings_run():
    modules = [lazyrows, *(importlib.import_module(name) for name in MODULES if not name.endswith("__main__"))]
    tests = [test for module in modules for test in doctest.DocTestFinder().find(module, extraglobs=NAMES)]
    assert sum(run(test) for test in tests if test.examples) >= 5
