"""What README and docs show has been run: here. Links lead somewhere, and the API reference has every public name."""

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import lakeformat
import lakeformat.dagster
from lakeformat import Lake, Scan, Table
from lakeformat.cli.app import COMMANDS
from lakeformat.dagster import LakeResource
from lakeformat.dialects.iceberg import options as iceberg
from lakeformat.dialects.paimon import options as paimon
from lakeformat.reading.inspect import Inspect

ROOT = Path(__file__).parents[2]
ALL = [*sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IN_A_REPOSITORY = "your-repository.md"  # Runs in tests/dagster/test_your_repository.py.
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if "```python" in p.read_text()]
PAGES = [p for p in PAGES if p.name != IN_A_REPOSITORY]


def blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))


ON_SPARK = {
    page: [pytest.mark.spark, pytest.mark.from_pyspark("4.2" if "maxFilesPerTrigger" in blocks(page) else "4.0")]
    for page in PAGES
    if re.search(r"\bspark\b", blocks(page))
}
REFERENCE = "\n".join(p.read_text() for p in (ROOT / "docs" / "reference").glob("*.md"))
LIBRARY = "\n".join(p.read_text() for p in (ROOT / "lakeformat").rglob("*.py"))
OF_USERS = [p for p in ALL if p.parent.name != "decisions" and p.name not in ("CHANGELOG.md", "coming-from.md")]
# By the code in which a name stands: the names that exist.
NAMES = {
    r"\bmake ([a-z][a-z-]*)": set(re.findall(r"^([a-z-]+)(?=.*:.*##)", (ROOT / "Makefile").read_text(), re.MULTILINE)),
    r"(?:lakeformat|'\.|clone)\[([a-z]+)\]": set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ),
    r"\blakeformat ([a-z]+)(?![a-z./])": set(COMMANDS),
    r"(?<![\w-])--([a-z][a-z-]*)": set(re.findall(r"--([a-z][a-z-]*)", LIBRARY)) | {"constraint", "editable"},
    r"\btable\.([a-z_]\w*)\(": set(dir(Table)),
    r"\blake\.([a-z_]\w*)\(": {*dir(Lake), *dir(LakeResource)},
    r"\binspect\.([a-z_]\w*)": set(dir(Inspect)),
    r"\bscan\.([a-z_]\w*)\(": set(dir(Scan)),
    r"\blakeformat\.dagster\.([A-Za-z]\w*)": {*lakeformat.dagster.__all__, "components"},
}
# Misspelt on purpose, made up, or of other software.
NOT_OURS = {
    "snapshot.time-retaind",
    "write.delete.mdoe",
    "my.team.tag",
    "t.branch_audit",
    "raw.clicks",
    "public.bookings",
    "p.element.x",
    "scalar-index.search-mode",
    "client.refresh-credentials-endpoint",
    "lock.type",
    "table.type",
    "format-table.enabled",
}


@pytest.mark.parametrize("page", [pytest.param(p, id=p.name, marks=ON_SPARK.get(p, [])) for p in PAGES])
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    names = {"spark": request.getfixturevalue("spark")} if page in ON_SPARK else {}
    for spark in names.values():  # Pages attach tables of the same names, each of a lake of its own.
        spark.sql("DROP DATABASE IF EXISTS shop CASCADE")
    exec(compile(blocks(page), str(page), "exec"), names)


@pytest.mark.parametrize("page", ALL, ids=lambda p: p.name)
def test_the_links_of_a_page_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        if not target.startswith("http"):
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in addresses."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [p for p in ALL if p.parent.name != "decisions" and p.name != "CHANGELOG.md"], ids=lambda p: p.name
)
def test_pages_say_what_the_glossary_says(page):
    rows = [
        line.split("|") for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")
    ]
    unwanted = {word.strip(): row[1].strip() for row in rows[1:] for word in row[5].split(",") if word.strip(" -")}
    assert len(unwanted) > 5
    text = (
        page.read_text().partition("\n| term |")[0].lower() if page.name == "glossary.md" else page.read_text().lower()
    )
    text = re.sub(r"\s+", " ", text)
    assert {word: ours for word, ours in unwanted.items() if re.search(rf"\b{word}\b", text)} == {}


@pytest.mark.parametrize("page", [p for p in ALL if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_the_files_and_modules_that_a_page_names_exist(page):
    text = page.read_text()
    tops = "lakeformat|tests|docs|assets|pipelines|resources|benchmarks|examples"
    rooms = "|".join(sorted(p.name for p in (ROOT / "lakeformat").iterdir() if p.is_dir()))
    files = re.findall(rf"`((?:{tops}|{rooms})/[\w./-]+)`", text)
    files = [path for path in files if path.endswith(("/", ".py", ".txt", ".md"))]
    modules = [name.replace(".", "/") for name in re.findall(r"\b(?:python -m) ([\w.]+)", text)]
    modules += [name.replace(".", "/") for name in re.findall(r"`(lakeformat(?:\.[a-z_]+)+)`", text)]
    modules = [path for path in modules if (ROOT / path.partition("/")[0]).exists()]
    assert page.name != "CONTRIBUTING.md" or len(files) > 40
    assert [path for path in files if not any((top / path).exists() for top in (ROOT, ROOT / "lakeformat"))] == []
    assert [
        path
        for path in modules
        if not (ROOT / path).exists()
        and not (ROOT / f"{path}.py").exists()
        and not re.search(rf"\b{path.rpartition('/')[2]}\b", LIBRARY)
    ] == []


@pytest.mark.parametrize("page", OF_USERS, ids=lambda p: p.name)
def test_the_names_in_the_code_of_a_page_exist(page):
    codes = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    text = "\n".join(code for code in codes if not code.startswith("dg "))
    unknown = {name for pattern, known in NAMES.items() for name in re.findall(pattern, text) if name not in known}
    assert unknown == set()


@pytest.mark.parametrize("page", OF_USERS, ids=lambda p: p.name)
def test_the_options_that_a_page_names_exist(page):
    """Keys with points and hyphens, alone or with a value."""
    keys = re.findall(r"`([a-z][a-z\d]*(?:[.-][a-z\d-]+)*\.[a-z\d]+(?:-[a-z\d]+)*)(?: ?=[^`]*)?`", page.read_text())
    keys = [key for key in keys if not key.endswith((".py", ".toml", ".yaml", ".md", ".sqlite", ".json"))]
    unknown = {key for key in keys if not paimon.DOCUMENTED.is_known(key) and not iceberg.DOCUMENTED.is_known(key)}
    assert {key for key in unknown if key not in LIBRARY} - NOT_OURS == set()


def test_every_page_is_in_the_menu_of_the_site():
    menu = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert sorted(menu) == sorted({p for p in pages if not p.startswith("decisions/")} | {"changelog.md"})


@pytest.mark.parametrize("package", [lakeformat, lakeformat.dagster], ids=lambda p: p.__name__)
def test_every_public_name_is_in_the_reference(package):
    errors = {name for name in package.__all__ if hasattr(lakeformat.errors, name)}
    named = set(re.findall(rf"^::: {package.__name__}\.(\w+)$", REFERENCE, re.MULTILINE))
    assert set(package.__all__) - errors - {"__version__"} - named == set()
    assert not errors or "::: lakeformat.errors\n" in REFERENCE


@pytest.mark.parametrize("name", re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE))
def test_what_the_reference_names_is_there_and_documented(name):
    module, _, attribute = name.rpartition(".")
    named = import_module(name) if name == "lakeformat.errors" else getattr(import_module(module), attribute)
    assert named.__doc__


def test_troubleshooting_quotes_messages_of_the_code():
    """Of each message the pieces between the `…`, which stand for names and numbers."""
    texts: list[str] = []
    for path in (ROOT / "lakeformat").rglob("*.py"):
        constants = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
        texts += [constant for constant in constants if isinstance(constant, str)]
    known = "\n".join(texts)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = "".join(re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)).splitlines()
    pieces = {piece.strip() for line in quoted for piece in re.sub(r"^[A-Z]\w+: ", "", line).split("…")}
    assert len(quoted) > 30
    assert {piece for piece in pieces if piece not in known} == set()
    errors = {match[1] for line in quoted if (match := re.match(r"([A-Z]\w+): ", line))}
    assert errors - {"SparkUnavailable"} <= set(vars(lakeformat.errors))


def test_the_list_of_decisions_has_each_note_with_its_title_and_subtitle():
    notes = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    heads = [(note, note.read_text().split("\n")) for note in notes]
    rows = [f"| [{lines[0].removeprefix('# ')}]({note.name}) | {lines[2]} |" for note, lines in heads]
    written = (ROOT / "docs" / "decisions" / "README.md").read_text().splitlines()
    assert [line for line in written if line.startswith("| [")] == rows


def test_the_asset_of_the_readme_is_the_one_that_is_run():
    """tests/dagster/test_your_repository.py runs it; README is also run where Dagster is not installed."""
    shown = re.findall(r"^```py\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) == 1
    needs, _, asset = shown[0].partition("\n")
    assert needs.startswith("# Needs ")
    assert blocks(ROOT / "docs" / IN_A_REPOSITORY).startswith(asset)
