"""What loads when it is first used: libraries and packages that take long to import, and that most runs do not need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # Asked for once.
        return value


def library(name: str) -> Any:
    """A module in whose place `import name` could stand; it is imported when one of its names is asked for."""
    return _Lazy(name)


def names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names stand in `modules` (name -> module within the package), each of which is
    imported when one of its names is asked for. The package imports them under TYPE_CHECKING too, where the import rule sees them.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
