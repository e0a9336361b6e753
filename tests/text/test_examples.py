import doctest
import pkgutil
from importlib import import_module

import pytest

import regard.text

MODULES = [m.name for m in pkgutil.walk_packages(regard.text.__path__, "regard.text.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings(name):
    assert doctest.testmod(import_module(name)).failed == 0
