"""Lazy imports: libraries and packages that take long to import and that most runs do not need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # Read once.
        return value


def library(name: str) -> Any:
    """A stand-in for `import name`, which imports the module when one of its names is used."""
    return _Lazy(name)


def names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names are in `modules` (name -> module of the package); each module
    is imported when its name is used. The package also imports the names under TYPE_CHECKING, where the test of layers
    sees them."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
