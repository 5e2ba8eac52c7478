"""The stubs of pyarrow beside this file say nothing that the installed pyarrow has not."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

STUBS = Path(__file__).parent / "pyarrow"


@pytest.mark.parametrize("stub", sorted(STUBS.glob("*.pyi")), ids=lambda stub: stub.stem)
def test_names_and_parameters_are_pyarrows(stub):
    name = "pyarrow" if stub.stem == "__init__" else f"pyarrow.{stub.stem}"
    missing = list(_differences(importlib.import_module(name), ast.parse(stub.read_text()).body))
    assert missing == [], missing


def _differences(there, body):
    for node in body:
        if isinstance(node, ast.ClassDef):
            if hasattr(there, node.name):
                yield from (
                    f"{node.name}.{difference}" for difference in _differences(getattr(there, node.name), node.body)
                )
            else:
                yield node.name
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):  # Those are of C.
            if not hasattr(there, node.name):
                yield node.name
            else:
                yield from _parameters(node, getattr(there, node.name))
        elif isinstance(node, ast.AnnAssign) and inspect.isclass(there) and not _has(there, node.target.id):
            yield node.target.id


def _has(there, name):
    return hasattr(there, name) or name in inspect.getsource(there)  # Attributes that `__init__` sets.


def _parameters(node, there):
    try:
        known = inspect.signature(there).parameters
    except ValueError:  # Compiled without one.
        return
    given = node.args
    names = [
        argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs) if argument.arg != "self"
    ]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
    yield from (f"{node.name}({name})" for name in names if name not in known and not takes_any)
