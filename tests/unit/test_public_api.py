"""The public API may grow, and does not change: what `public_api.txt` names is there, and is called in the same way.

Record what was added with `python tests/unit/test_public_api.py`.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("public_api.txt")
# Classes that only verbs make: their constructors and fields are no promise.
MADE_BY_VERBS = {
    "Table",
    "Scan",
    "Changes",
    "Inspect",
    "Alteration",
    "MergeInto",
    "WriteSession",
    "DeltaWriter",
    "Result",
}


def public() -> dict[str, str]:
    """Every name of the reference with its parameters, and the members of classes with theirs: name -> the rest of its line."""
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    lines: dict[str, str] = {}
    for name in re.findall(r"^::: ([\w.]+)$", reference, re.MULTILINE):
        if name == "lakeformat.errors":
            lines |= {
                f"lakeformat.{value.__name__}": bases(value)
                for value in vars(import_module(name)).values()
                if is_error(value)
            }
            continue
        module, _, attribute = name.rpartition(".")
        value = getattr(import_module(module), attribute)
        if is_error(value):
            lines[name] = bases(value)
            continue
        called = attribute not in MADE_BY_VERBS
        short = name if called else attribute  # Where such a class stands is no promise either.
        lines[short] = parameters(value) if called else ""
        if attribute == "MergeInto":  # With what its clauses are.
            whens = [member for name, member in vars(sys.modules[value.__module__]).items() if name.startswith("When")]
            lines |= {f"{when.__name__}.{m}": text for when in whens for m, text in members(when, fields=False)}
        if inspect.isclass(value):
            lines |= {f"{short}.{member}": text for member, text in members(value, fields=called)}
    return lines


def members(cls: type, fields: bool) -> Iterator[tuple[str, str]]:
    """Methods and properties, and with `fields` the fields of a dataclass or a model; not those of other libraries' classes."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("lakeformat")]
    names = {m for base in ours for m in (*vars(base), *inspect.get_annotations(base))}
    for member in sorted(name for name in names if not name.startswith(("_", "model_"))):
        value = inspect.getattr_static(cls, member, None)
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if inspect.isfunction(value):
            yield member, parameters(value)
        elif fields or isinstance(value, property):
            yield member, ""


def parameters(value: Any) -> str:
    """`(name, name=default, *, name=default)`; a default that is no literal is `...`."""
    signature = inspect.signature(value)
    plain = [
        p.replace(annotation=p.empty, default=p.default if p.default is p.empty or literal(p.default) else ...)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return re.sub(r"Ellipsis", "...", str(signature.replace(parameters=plain, return_annotation=signature.empty)))


def literal(default: Any) -> bool:
    return (
        default is None
        or isinstance(default, bool | int | float | str)
        or (type(default) in (tuple, dict, list) and not default)
    )


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def bases(error: type) -> str:
    return f" < {', '.join(base.__name__ for base in error.__bases__)}"


def still_callable(recorded: str, now: str) -> bool:
    """Whether each call that the recorded parameters allow is allowed and means the same."""
    before, after = (text[1:-1].split(", ") if text != "()" else [] for text in (recorded, now))
    by_place = before[: before.index("*")] if "*" in before else before
    grown = [parameter for parameter in after if parameter not in before and parameter != "*"]
    return (
        after[: len(by_place)] == by_place
        and set(before) <= {*after, "*"}
        and all("=" in parameter or parameter.startswith("*") for parameter in grown)
    )


def record() -> dict[str, str]:
    lines = (re.fullmatch(r"([\w.]+)(.*)", line) for line in RECORD.read_text().splitlines())
    return {line[1]: line[2] for line in lines}


def test_what_is_recorded_is_there_and_called_in_the_same_way():
    now, recorded = public(), record()
    assert len(recorded) > 200
    assert not recorded.keys() - now.keys()
    changed = {name: (line, now[name]) for name, line in recorded.items() if line != now[name]}
    broken = {name: both for name, both in changed.items() if both[0][:1] != "(" or not still_callable(*both)}
    assert not broken, broken


@pytest.mark.parametrize(
    ("recorded", "now", "allowed"),
    [
        ("(a, b=1)", "(a, b=1, c=2)", True),
        ("(a, b=1)", "(a, b=1, *, c=None)", True),
        ("(a, *, b=1)", "(a, c=2, *, b=1)", True),
        ("()", "(a=1)", True),
        ("(a, b=1)", "(a, c=2, b=1)", False),
        ("(a, b=1)", "(a, b=2)", False),
        ("(a, b=1)", "(a, *, b=1)", False),
        ("(a)", "(a, b)", False),
        ("(a, *, b=1)", "(a)", False),
    ],
)
def test_a_signature_may_grow_and_not_change(recorded, now, allowed):
    assert still_callable(recorded, now) == allowed


if __name__ == "__main__":
    RECORD.write_text("".join(f"{name}{text}\n" for name, text in sorted(public().items())))
