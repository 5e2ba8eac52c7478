"""Each command over tables that Java engines, pypaimon and pyiceberg wrote: what it prints is what their own metadata, and the rows that they read, say."""

import csv
import datetime
import hashlib
import io
import json
import os
import re
import shutil
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeformat import clock
from lakeformat.cli.app import run
from tests import doors
from tests.unit.dialects.iceberg.test_golden_tables import GOLDEN as ICEBERG
from tests.unit.dialects.iceberg.test_golden_tables import opened

PAIMON, PYTHON = ICEBERG.parent / "paimon", ICEBERG.parent / "python"
TABLES = [
    *(f"java09.{n}" for n in ("keyed_parquet", "tagged_parquet", "partitioned_parquet", "expired_parquet")),
    *(f"ice.{n}" for n in ("v2_evolved", "v2_keys", "v2_positions", "v3_defaults", "v3_vectors", "pyiceberg")),
    "python.pypaimon",
]  # fmt: skip

_VERSION = re.compile(r"/v(\d+)[.]metadata[.]json$")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Facts:
    """What the engine that wrote a table says of it."""

    format: str
    columns: list[str]
    partition_columns: list[str]
    rows: dict[int, int]  # Of each snapshot, oldest first.
    ids: list[int]  # The values of `id` in the newest.
    tags: dict[str, int]
    files: int | None = None  # Data files of the newest snapshot, where its metadata count them.
    deleted: float = 0  # Rows of its delete files as a share of stored rows.

    @property
    def newest(self) -> int:
        return [*self.rows][-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(a warehouse, the facts of its tables). Tables of Iceberg name their files by absolute paths, which are made those of here."""
    root = tmp_path_factory.mktemp("golden")
    facts = {}
    for name in TABLES:
        database, _, table = name.partition(".")
        to = root / f"{database}.db" / table
        facts[name] = _MADE[database](table, to)
    return root, facts


def _paimon(name, to):
    shutil.copytree(PAIMON / "java09.db" / name, to)
    expected = json.loads((PAIMON / "expected" / f"{name}.json").read_text())
    last = max((to / "schema").glob("schema-*"), key=lambda path: int(path.name[7:]))
    schema = json.loads(last.read_text())
    stored = {int(path.name[9:]) for path in (to / "snapshot").glob("snapshot-*")}
    rows = {int(id): len(moment["rows"]) for id, moment in expected["snapshots"].items()}
    assert rows.keys() == stored
    at = [field["name"] for field in schema["fields"]].index("id")
    return Facts(
        "paimon", [field["name"] for field in schema["fields"]], schema["partitionKeys"], dict(sorted(rows.items())),
        [row[at] for row in expected["latest"]["rows"]], {n: len(m["rows"]) for n, m in expected["tags"].items()},
    )  # fmt: skip


def _pypaimon(name, to):
    with zipfile.ZipFile(PYTHON / f"{name}.zip") as packed:
        expected = json.loads(packed.read("expected.json"))
        packed.extractall(to, [path for path in packed.namelist() if path != "expected.json"])
    schema = json.loads((to / "schema" / "schema-0").read_text())
    names = [column["name"] for column in expected["latest"]["columns"]]
    rows = {int(id): len(answer["rows"]) for id, answer in expected["snapshots"].items()}
    ids = [row[names.index("id")] for row in expected["latest"]["rows"]]
    return Facts("paimon", [field["name"] for field in schema["fields"]], schema["partitionKeys"], rows, ids, {})


def _iceberg(name, to):
    table, expected = opened(name)
    store, location = doors.store(table), expected["location"]
    made = table.rewrite_table_path(location, f"file://{to}", staging=f"{location}/staging")
    for source, target in csv.reader(io.StringIO(store.read(_within(made.file_list, location)).decode())):
        path = Path(target.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(_within(source, location)))
    newest = max((p for p in store.list("metadata") if _VERSION.search(p.path)), key=_version).path
    document = json.loads(store.read(newest))
    schema = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    spec = next(s for s in document["partition-specs"] if s["spec-id"] == document["default-spec-id"])
    names = {field["id"]: field["name"] for field in schema["fields"]}
    order = [entry["snapshot-id"] for entry in document["snapshot-log"]]
    summary = {s["snapshot-id"]: s["summary"] for s in document["snapshots"]}[order[-1]]
    totals = {name[6:]: int(value) for name, value in summary.items() if name.startswith("total-")}
    latest = expected["latest"]
    at = [column["name"] for column in latest["columns"]].index("id")
    return Facts(
        "iceberg", list(names.values()), [names[field["source-id"]] for field in spec["fields"]],
        {id: len(expected["snapshots"][str(id)]["rows"]) for id in order}, [row[at] for row in latest["rows"]], {},
        totals["data-files"], (totals["equality-deletes"] + totals["position-deletes"]) / totals["records"],
    )  # fmt: skip


_MADE = {"java09": _paimon, "ice": _iceberg, "python": _pypaimon}


def _within(path, place):
    return path.removeprefix("file://").removeprefix("file:").removeprefix(f"{place.removeprefix('file://')}/")


def _version(each):
    return int(_VERSION.search(each.path)[1])


@pytest.fixture
def cli(world, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")

    def call(*arguments, code=0):
        capsys.readouterr()
        found = run([*(() if "--warehouse" in arguments else ("--warehouse", str(world[0]))), *arguments])
        out, err = capsys.readouterr()
        assert found == code, (arguments, out, err)
        return out

    call.json = lambda *arguments, **how: json.loads(call("--json", *arguments, **how))
    return call


def _contents(root):
    return {str(path): hashlib.md5(path.read_bytes()).digest() for path in sorted(root.rglob("*")) if path.is_file()}


def test_ls_lists_them_with_the_rows_that_their_engines_read(world, cli):
    listed = {line["table"]: line for line in cli.json("ls")}
    assert listed.keys() == set(TABLES)
    drawn = [line.partition("── ")[2].split() for line in cli("ls").splitlines() if " rows " in line]
    for name, facts in world[1].items():
        line = listed[name]
        assert (line["format"], line["rows"]) == (facts.format, facts.rows[facts.newest]), name
        assert facts.files in (None, line["files"]), name
        shown = [name.partition(".")[2], facts.format, str(line["rows"]), "rows", str(line["files"]), "files"]
        assert shown in [row[:6] for row in drawn]
    assert {line["table"] for line in cli.json("ls", "ice")} == {name for name in TABLES if name.startswith("ice.")}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", TABLES)
def test_commands_that_read_say_what_the_engine_that_wrote_a_table_says(world, cli, name):
    facts = world[1][name]
    count, snapshots = facts.rows[facts.newest], [*facts.rows]

    answer = cli.json("show", name)
    assert (answer["format"], answer["rows"], answer["snapshot_id"], answer["snapshots"]) == (
        facts.format, count, facts.newest, len(snapshots),
    )  # fmt: skip
    assert [column["name"] for column in answer["columns"]] == facts.columns
    assert {column["name"] for column in answer["columns"] if column["partition"]} == set(facts.partition_columns)
    drawn = cli("show", name)
    assert f"snapshot {facts.newest} of " in drawn
    assert all(any(column in line.split() for line in drawn.splitlines()) for column in facts.columns)

    logged = cli.json("log", name, "-n", "100")
    assert [line["id"] for line in logged] == snapshots[::-1]
    assert "current" in logged[0]["names"]
    tagged = {
        label[4:]
        for line in cli.json("log", name, "-n", "100", "--graph")
        for label in line["names"]
        if label[:4] == "tag "
    }
    assert tagged <= facts.tags.keys()
    lines = cli("log", name, "-n", "100").splitlines()
    assert len(lines) == len(snapshots)
    assert all(line.startswith(f"● {id} ") for line, id in zip(lines, snapshots[::-1], strict=True))

    for id, rows in facts.rows.items():
        assert cli("count", name, "--snapshot", str(id)) == f"{rows}\n"
    for tag, rows in facts.tags.items():
        assert cli.json("count", name, "--tag", tag) == {"rows": rows}
    if len(snapshots) > 1:
        before, after = snapshots[-2:]
        change = cli.json("diff", name, f"{before}..{after}")
        assert (change["from"], change["to"]) == (before, after)
        assert (change["rows_before"], change["rows_after"]) == (facts.rows[before], facts.rows[after])
        assert f"rows {facts.rows[before]} -> {facts.rows[after]}" in cli("diff", name)

    listed = cli.json("files", name)
    data = [entry for entry in listed if "deletes" not in entry["path"]]
    assert facts.files in (None, len(data))
    table = Path(answer["location"].removeprefix("file://"))
    assert all((table / entry["path"].removeprefix(f"{answer['location']}/")).is_file() for entry in listed)
    assert sum(entry["row_count"] for entry in data) >= count
    assert len(cli("files", name).splitlines()) == len(listed) + 1
    assert "a block is a share of a file" in cli("files", name, "--heat")

    most = max(facts.ids)
    reasons = cli.json("why", name, "--where", f"id > {most}")
    assert reasons["files"] == len(data)
    assert reasons["files_read"] <= len(data)
    everything = cli.json("why", name, "--where", f"id <= {most}")
    assert everything["files_read"] > 0
    assert f"reads {everything['files_read']} of {len(data)} files" in cli("why", name, "--where", f"id <= {most}")

    assert sorted(row["id"] for row in cli.json("head", name, "-n", "100", "--columns", "id")) == sorted(facts.ids)
    assert [*cli.json("head", name, "-n", "1")[0]] == facts.columns
    assert cli("head", name, "-n", "1").split("\n")[0].split() == facts.columns
    query = f"SELECT count(*) AS n, min(id) AS low, max(id) AS high FROM {name}"
    assert cli.json("sql", query) == [{"n": count, "low": min(facts.ids), "high": most}]
    assert cli("sql", query).splitlines()[1].split() == [str(count), str(min(facts.ids)), str(most)]


@pytest.mark.parametrize("years", [0, 30])
@pytest.mark.parametrize("name", TABLES)
def test_the_doctor_finds_what_is_past_its_time(world, cli, monkeypatch, name, years):
    """On the day on which its engine wrote a table, and years later."""
    facts = world[1][name]
    (newest,) = cli.json("log", name, "-n", "1")
    day = datetime.datetime.fromisoformat(f"{newest['time']}+00:00") + datetime.timedelta(days=365 * years)
    monkeypatch.setattr(clock, "now_ms", lambda: int(day.timestamp() * 1000))
    expected = []
    if facts.deleted > 0.2:
        expected.append(("deleted rows", f"{facts.deleted:.0%} of "))
    if years and facts.format == "iceberg" and len(facts.rows) > 1:  # Paimon keeps ten snapshots, whatever their age.
        expected.append(("old snapshots", f"{len(facts.rows) - 1} are past their time, "))
    command, code = ("doctor", name, "--orphans-older-than", "36500"), 1 if expected else 0
    findings, text = cli.json(*command, code=code), cli(*command, code=code)
    assert [finding["problem"] for finding in findings] == [problem for problem, _ in expected]
    lines = [f"{problem:<14}{name}: {start}" for problem, start in expected] or [f"ok    {name}"]
    assert all(line.startswith(start) for line, start in zip(text.splitlines(), lines, strict=True)), text


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", TABLES)
def test_a_dry_run_of_a_command_that_writes_names_what_is_there_and_changes_nothing(world, cli, name):
    root, facts = world[0], world[1][name]
    count, oldest, newest = facts.rows[facts.newest], next(iter(facts.rows)), facts.newest
    location = cli.json("show", name)["location"]
    live = [entry["path"].removeprefix(f"{location}/") for entry in cli.json("files", name)]
    lost = _UUID.sub(str(uuid.UUID(int=0)), live[0])
    orphan = Path(location.removeprefix("file://"), lost)
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (1, 1))
    before = _contents(root)

    units = cli.json("compact", name, "--full", "--dry-run")["units"]
    paths = [path.removeprefix(f"{location}/") for unit in units for path in unit["paths"]]
    assert set(paths) <= set(live)
    assert len(paths) == len(set(paths))
    assert f"would write {len(paths)} file" in cli("compact", name, "--full", "--dry-run")

    gone = cli.json("expire", name, "--retain-last", "1", "--older-than", "0s", "--dry-run")
    assert gone["snapshots"] == [*facts.rows][:-1]
    named = {file["path"] for file in gone["files"]}
    assert not named & set(live)
    assert [path for path in named if not Path(location.removeprefix("file://"), path).is_file()] == []

    (swept,) = cli.json("sweep", name, "--dry-run")["files"]
    assert swept == {"path": lost, "size_bytes": 4}
    assert lost in cli("sweep", name, "--dry-run")

    back = cli.json("rollback", name, "--snapshot", str(oldest), "--dry-run")
    assert (back["rows_before"], back["rows_after"]) == (count, facts.rows[oldest])
    assert set(back["leaves_history"]) <= facts.rows.keys()
    assert cli.json("tag", name, "mine", "--dry-run") == {"tag": "mine", "snapshot_id": newest, "dry_run": True}
    assert cli("branch", name, "mine", "--dry-run") == f"branch mine would begin at snapshot {newest}\n"
    other = "paimon" if facts.format == "iceberg" else "iceberg"
    copied = cli.json("copy", name, "copied.t", "--format", other, "--dry-run")
    assert (copied["rows"], copied["snapshot_id"], copied["format"]) == (count, newest, other)

    assert _contents(root) == before
    orphan.unlink()


@pytest.mark.parametrize(
    "name", ["java09.partitioned_parquet", "java09.rolled_back_orc", "ice.v2_keys", "ice.v3_defaults"]
)
def test_a_table_of_another_engine_is_copied_and_converted(cli, tmp_path, name):
    database, _, table = name.partition(".")
    facts = _MADE[database](table, tmp_path / f"{database}.db" / table)
    there, other = ("--warehouse", str(tmp_path)), "paimon" if facts.format == "iceberg" else "iceberg"
    assert cli.json(*there, "copy", name, "copied.t", "--format", other)["rows"] == len(facts.ids)
    if name == "java09.partitioned_parquet":  # Its files have no field ids, which Iceberg's readers look for.
        before = _contents(tmp_path / "java09.db" / table / "snapshot")
        cli(*there, "convert", name, "--to", other, code=2)
        assert _contents(tmp_path / "java09.db" / table / "snapshot") == before
    else:
        assert cli.json(*there, "convert", name, "--to", other)["format"] == other
        assert cli.json(*there, "show", name)["format"] == other
    for each in (name, "copied.t"):
        assert sorted(row["id"] for row in cli.json(*there, "head", each, "-n", "99")) == sorted(facts.ids), each
