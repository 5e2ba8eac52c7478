"""Counts of the package's structure, as decision 053 gives them: `python -m tests.house [FOLDER]`."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
Functions = ast.FunctionDef | ast.AsyncFunctionDef


def trees(root: Path = ROOT) -> dict[str, ast.Module]:
    paths = sorted((root / "lakeformat").rglob("*.py"))
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in paths}


def counts(modules: Mapping[str, ast.Module], root: Path = ROOT) -> dict[str, int]:
    """The measures by name. They may shrink."""
    functions = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, Functions)]
    views = [path for path in modules if path.endswith("/view.py") and path.startswith("lakeformat/dialects/")]
    protocol = "lakeformat/dialects/dialect.py"
    return {
        "lines of dialects/dialect.py": lines(root / protocol),
        "lines of the two view.py": sum(lines(root / path) for path in views),
        "forwarders in the two view.py": sum(map(forwards, functions_in(modules[path] for path in views))),
        "forwarders in lakeformat": sum(map(forwards, functions)),
        "functions with a reader and a state": sum(map(takes_both, functions)),
        "protocols to test for": sum(map(is_tested_for, ast.walk(modules[protocol]))),
        "isinstance tests on them": sum(tests_for(tree, names_to_test(modules[protocol])) for tree in modules.values()),
    }


def functions_in(modules: Iterator[ast.Module]) -> Iterator[Functions]:
    return (node for tree in modules for node in ast.walk(tree) if isinstance(node, Functions))


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def forwards(function: Functions) -> bool:
    """Whether a function only calls another one, with its own parameters, attributes of them and constants."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or not isinstance(body[0].value, ast.Call):
        return False
    call = body[0].value
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    values = [value.value if isinstance(value, ast.Starred) else value for value in values]
    return bool(values) and all(map(is_plain, [call.func, *values]))


def is_plain(node: ast.AST) -> bool:
    """Whether a node is a name, a constant, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)


def takes_both(function: Functions) -> bool:
    names = {argument.arg for argument in function.args.args}
    return "reader" in names and bool(names & {"base", "state"})


def is_tested_for(node: ast.AST) -> bool:
    """Whether a class is a protocol that `isinstance` may test for."""
    decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
    return any(isinstance(name, ast.Name) and name.id == "runtime_checkable" for name in decorators)


def names_to_test(protocol: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(protocol) if isinstance(node, ast.ClassDef) and is_tested_for(node)}


def tests_for(tree: ast.Module, names: set[str]) -> int:
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node.args[1]))
        for node in ast.walk(tree)
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for measure, count in counts(trees(folder), folder).items():
        print(f"{count:6}  {measure}")
