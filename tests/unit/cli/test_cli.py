"""The command line: answers as pictures and as JSON, dry runs that do nothing, mistakes in one line with exit code 2."""

import base64
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pyarrow import csv

from lakeformat import Lake
from lakeformat.cli import app
from lakeformat.cli.app import run
from lakeformat.cli.commands import log
from tests.unit.dialects.iceberg.test_encryption import MASTER, encrypt

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "paimon"
SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string()), ("dt", pa.string())])


def rows(ids, day, item="x"):
    return pa.table({"id": ids, "item": [item] * len(ids), "dt": [day] * len(ids)}, schema=SCHEMA)


@pytest.fixture(params=["paimon", "iceberg"])
def table(request, tmp_path):
    table = Lake(tmp_path / "wh").create_table("shop.orders", SCHEMA, format=request.param, partition_by=["dt"])
    for day in range(3):
        table.append(rows([day * 10, day * 10 + 1], f"d{day}"))
    table.append(rows([30], "d0", "[red]y[/red]"))
    return table


@pytest.fixture
def cli(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LAKEFORMAT_WAREHOUSE", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments, warehouse=tmp_path / "wh", code=0):
        capsys.readouterr()
        given = ["--warehouse", str(warehouse), *arguments] if warehouse else list(arguments)
        found = run(given)
        out, err = capsys.readouterr()
        assert found == code or (isinstance(code, tuple) and found in code), (given, out, err)
        if found == 2:
            assert len(err.strip().splitlines()) == 1, (given, err)
        return out if found != 2 else err

    call.json = lambda *arguments, **how: json.loads(call("--json", *arguments, **how))
    return call


def state(table):
    files = sorted((f.path, f.modified_ms) for f in table.stored_files())
    return files, [s.id for s in table.snapshots()]


def test_ls_shows_tables_below_their_database(table, cli):
    out = cli("ls")
    assert "shop" in out
    assert "orders" in out
    assert "7 rows" in out
    (line,) = cli.json("ls")
    assert (line["table"], line["format"], line["rows"], line["files"]) == ("shop.orders", table.format, 7, 4)


def test_show_names_columns_partitions_and_health(table, cli):
    table.alter().set_properties({"owner": "ops"}).commit()
    out = cli("show", "shop.orders")
    assert "partition dt" in out
    assert "owner" in out
    answer = cli.json("show", "shop.orders")
    assert [c["name"] for c in answer["columns"]] == ["id", "item", "dt"]
    assert (answer["rows"], answer["files"], answer["partitions"], answer["snapshots"]) == (7, 4, 3, 4)
    assert answer["location"] == table.uri


def test_log_lists_snapshots_newest_first(table, cli):
    table.append(rows([99], "d9"), id="run-7/orders/d9")
    answer = cli.json("log", "shop.orders")
    assert [line["rows_added"] for line in answer] == [1, 1, 2, 2, 2]
    assert answer[0]["operation_id"] == "run-7/orders/d9"
    assert "current" in answer[0]["names"]
    out = cli("log", "shop.orders", "-n", "2")
    assert len(out.splitlines()) == 2
    assert "by run-7/orders/d9" in out
    assert len(cli("log", "shop.orders", "--graph").splitlines()) == 5


def test_log_draws_what_was_rolled_back_and_branches_beside_the_table(tmp_path, cli):
    table = Lake(tmp_path / "wh").create_table("shop.orders", SCHEMA, format="iceberg")
    first = table.append(rows([1], "a"))
    table.create_branch("audit").append(rows([2], "a"))
    table.append(rows([3], "a"))
    table.rollback_to(snapshot_id=first.id)
    lines = [
        line.split("●")[0] + "●" if "●" in line else line for line in cli("log", "shop.orders", "--graph").splitlines()
    ]
    assert lines == ["●", "│ ●", "│ │ ●", "├─┼─┘", "├─┘", "●"]


def test_log_draws_branches_that_count_their_own_snapshots(tmp_path, cli):
    """Of a Paimon table: a branch begins with a copy of a tag's snapshot, and goes on with ids that the table has too."""
    table = Lake(tmp_path / "wh").create_table("shop.orders", SCHEMA, format="paimon")
    table.append(rows([1], "a"))
    table.create_tag("v1")
    table.append(rows([2, 3], "a"))
    table.create_branch("audit", tag="v1").append(rows([4, 5, 6], "a"))
    table.append(rows([7], "a"))
    lines = cli("log", "shop.orders", "--graph").splitlines()
    assert [line.split("  ")[0] for line in lines] == ["● 3 (current)", "│ ● 2 (audit)", "● │ 2", "├─┘", "● 1 (tag v1)"]
    answer = cli.json("log", "shop.orders", "--graph")
    assert [(line["id"], line["parent_id"], line["rows_added"]) for line in answer] == [
        (3, 2, 1),
        (2, 1, 3),
        (2, 1, 2),
        (1, None, 1),
    ]
    assert len(cli("log", "shop.orders").splitlines()) == 3


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([(3, 2), (2, 1), (1, None)], ["●", "●", "●"]),
        ([(4, 2), (3, 1), (2, 1), (1, None)], ["●", "│ ●", "● │", "├─┘", "●"]),
        ([(3, None), (2, 1), (1, None)], ["●", "●", "●"]),
    ],
)
def test_lanes(commits, expected):
    drawn, keys = [], [(("", id), parent and ("", parent)) for id, parent in commits]
    for joins, marks in log.lines(keys, {key for key, _ in keys}):
        drawn += [*joins, marks]
    assert drawn == expected


def test_diff_shows_schema_files_and_rows(table, cli):
    table.create_tag("v1")
    table.alter().add_column("price", "double").commit()
    table.append(pa.table({"id": [7], "item": ["z"], "dt": ["d1"], "price": [1.5]}))
    answer = cli.json("diff", "shop.orders", "v1..current", "--rows")
    assert answer["schema"] == ["+ column price double"]
    assert (answer["files_added"], answer["files_removed"], answer["rows_before"], answer["rows_after"]) == (1, 0, 7, 8)
    assert answer["rows"] == [{"id": 7, "item": "z", "dt": "d1", "price": 1.5, "_row_kind": "+I"}]
    assert "dt=d1" in cli("diff", "shop.orders")
    assert "only 5 snapshots are kept" in cli("diff", "shop.orders", "current~9..current", code=2)
    assert "write two versions" in cli("diff", "shop.orders", "5", code=2)


def test_files_are_listed_and_drawn(table, cli):
    assert len(cli.json("files", "shop.orders")) == 4
    assert "dt=d0" in cli("files", "shop.orders")
    drawn = cli("files", "shop.orders", "--heat")
    assert drawn.count("█") > 3
    assert "and 2 more" in cli("files", "shop.orders", "-n", "2")


def test_files_of_a_table_with_a_key_are_drawn_by_level(tmp_path, cli):
    schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
    table = Lake(tmp_path / "wh").create_table(
        "shop.keyed", schema, primary_key=["id"], properties={"bucket": "1", "write-only": "true"}
    )
    for _ in range(3):
        table.upsert({"id": [1, 2], "v": ["a", "b"]})
    assert "L0" in cli("files", "shop.keyed", "--heat")
    table.compact(full=True)
    assert "L5" in cli("files", "shop.keyed", "--heat")


def test_why_counts_what_a_condition_leaves_out(table, cli):
    answer = cli.json("why", "shop.orders", "--where", "dt >= 'd1' and id < 15")
    assert (answer["files"], answer["files_read"]) == (4, 1)
    assert len(answer["left_out_by"]) == 2
    assert (answer["manifests"], answer["manifests_read"]) == (4, 2)
    out = cli("why", "shop.orders", "--where", "dt >= 'd1' and id < 15")
    assert "reads 1 of 4 files" in out
    assert "id: 20 .. 21" in out


def test_head_and_count(table, cli):
    assert cli.json("head", "shop.orders", "--where", "id = 30") == [{"id": 30, "item": "[red]y[/red]", "dt": "d0"}]
    assert "[red]y[/red]" in cli("head", "shop.orders", "--where", "id = 30", "--columns", "id, item")
    assert cli("count", "shop.orders").strip() == "7"
    first = table.snapshots()[0].id
    assert cli("count", "shop.orders", "--snapshot", str(first), "--where", "id > 0").strip() == "1"


DRY = {
    "compact": ["compact", "shop.orders", "--full"],
    "expire": ["expire", "shop.orders", "--retain-last", "1"],
    "rollback": ["rollback", "shop.orders", "--tag", "v1"],
    "sweep": ["sweep", "shop.orders", "--older-than", "0s"],
    "tag": ["tag", "shop.orders", "v2", "--retain", "7d"],
    "delete a tag": ["tag", "shop.orders", "v1", "--delete"],
}


@pytest.mark.parametrize("command", DRY)
def test_a_dry_run_shows_what_would_be_and_changes_nothing(table, cli, command):
    table.create_tag("v1", snapshot_id=table.snapshots()[1].id)
    before = state(table)
    dry = cli.json(*DRY[command], "--dry-run")
    assert state(table) == before
    done = cli.json(*DRY[command])
    if command == "expire":
        assert dry["snapshots"] == done["snapshots"] != []
        assert {f["path"] for f in dry["files"]} >= {f["path"] for f in done["files"]} - {"EARLIEST"}
    if command == "rollback":
        assert dry["leaves_history"] == before[1][2:]
        assert dry["rows_after"] == table.scan().count() == 4
    if command == "compact":
        assert (dry["files"], done["files_removed"]) == (2, 2)
    if command == "tag":
        assert dry["snapshot_id"] == done["snapshot_id"]
    cli(*DRY[command][:2], *DRY[command][2:]) if command == "sweep" else None


def test_a_conversion_is_shown_before_it_is_made(table, cli):
    before, to = state(table), {"iceberg": "paimon", "paimon": "iceberg"}[table.format]
    command = ["convert", "shop.orders", "--to", to]
    planned = cli.json(*command, "--dry-run")
    assert "would write" in cli(*command, "--dry-run")
    assert state(table) == before
    paths = {part: {file["path"].partition("/")[0] for file in planned[part]} for part in ("written", "removed")}
    folders = {"iceberg": "metadata", "paimon": "snapshot"}
    assert folders[to] in paths["written"]
    assert folders[table.format] in paths["removed"]
    assert cli.json(*command)["format"] == to


def test_branches_are_made_listed_published_and_let_go(tmp_path, cli):
    table = Lake(tmp_path / "wh").create_table("shop.orders", SCHEMA, format="iceberg")
    table.append(rows([1], "a"))
    cli("branch", "shop.orders", "audit")
    table.branch("audit").append(rows([2], "a"))
    assert cli("count", "shop.orders@audit").strip() == "2"
    before = state(table)
    assert "would be at" in cli("branch", "shop.orders", "audit", "--publish", "--dry-run")
    assert state(table) == before
    cli("branch", "shop.orders", "audit", "--publish")
    assert cli("count", "shop.orders").strip() == "2"
    cli("branch", "shop.orders", "audit", "--delete")
    assert [row["branch_name"] for row in cli.json("branch", "shop.orders")] == ["main"]


def test_a_branch_is_renamed_and_buckets_are_compacted(tmp_path, cli):
    properties = {"bucket": "2", "bucket-key": "id"}
    table = Lake(tmp_path / "wh").create_table("shop.sales", SCHEMA, format="paimon", properties=properties)
    for _ in range(2):
        table.append(rows(range(20), "a"))
    table.create_branch("audit")
    assert "would be called checked" in cli("branch", "shop.sales", "audit", "--rename", "checked", "--dry-run")
    assert "is called checked" in cli("branch", "shop.sales", "audit", "--rename", "checked")
    assert [row["branch_name"] for row in cli.json("branch", "shop.sales")] == ["checked"]
    assert cli.json("compact", "shop.sales", "--full", "--buckets", "1", "--dry-run")["files"] == 2
    cli("compact", "shop.sales", "--full", "--buckets", "1")
    assert len(table.inspect.files()) == 3
    assert "neither a number nor a range" in cli("compact", "shop.sales", "--buckets", "x", code=2)


def test_doctor_finds_what_is_wrong_and_says_so_by_its_exit_code(table, cli):
    assert "ok" in cli("doctor")
    for i in range(9):
        table.append(rows([i], "d2"))
    assert "small files" in cli("doctor", code=1)
    cli("compact", "shop.orders")
    assert cli.json("doctor", "shop.orders") == []
    lost = table.inspect.files()["path"][0].as_py().removeprefix(f"{table.uri}/")
    os.remove(f"{table.uri.removeprefix('file://')}/{lost}")
    (found,) = cli.json("doctor", code=1)
    assert found["problem"] == "broken"
    assert lost in found["found"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_shows_how_far_a_copy_is_on_a_terminal_and_never_in_the_output(table, cli, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    piped = cli("copy", "shop.orders", "shop.piped", "--rows", "3")
    assert piped.splitlines() == [piped.rstrip("\n")]
    assert piped.startswith("copied 7 rows in 3 commits")
    for name, flags in (("shown", ()), ("told", ("--json",))):
        monkeypatch.setattr("sys.stdout", io.StringIO())
        monkeypatch.setattr("sys.stderr", Terminal())
        assert run(["--warehouse", "wh", "copy", "shop.orders", f"shop.{name}", "--rows", "3", *flags]) == 0
        written = sys.stdout.getvalue()
        bar = sys.stderr.getvalue()
        assert ("copying shop.orders" in bar, "7/7" in bar, "copying" in written) == (True, True, False)
        assert "copied 7 rows" in written or json.loads(written)["commits"] == 3


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_copy_makes_the_same_rows_in_another_format_and_goes_on_where_it_was_cut_off(table, cli, tmp_path, format):
    other = tmp_path / "other"
    command = ["copy", "shop.orders", "shop.copied", "--to", str(other), "--format", format, "--rows", "3"]
    assert cli.json(*command, "--dry-run")["rows"] == 7
    assert not other.exists()
    answer = cli.json(*command)
    assert (answer["rows"], answer["commits"]) == (7, 3)
    copied = Lake(other).table("shop.copied")
    assert copied.format == format
    assert copied.schema.partitioning.columns == ("dt",)
    assert sorted(copied.scan().to_arrow()["id"].to_pylist()) == [0, 1, 10, 11, 20, 21, 30]
    copied.rollback_to(snapshot_id=copied.snapshots()[0].id)  # As after the first of three commits.
    again = Lake(tmp_path / "cut").create_table("shop.copied", SCHEMA, format=format, partition_by=["dt"])
    first = copied.scan().to_arrow()
    again.append(first, id=f"copy/{table.uri}/{table.scan().snapshot_id}/0")
    command[4] = str(tmp_path / "cut")
    assert cli.json(*command)["rows"] == 7
    assert len(again.snapshots()) == 3
    again.append(rows([1], "d0"))
    assert "choose another name" in cli(*command, code=2)


COMMANDS = ["show", "log", "files", "count", "head", "diff"]


@pytest.mark.parametrize("command", COMMANDS)
def test_tables_of_another_engine_are_shown(cli, command):
    """Each table by two of the commands; what they print of some, `test_cli_golden` looks at."""
    lake, turn = Lake(GOLDEN), COMMANDS.index(command)
    every = lake.tables()
    for name in sorted({*every[turn :: len(COMMANDS)], *every[turn + 3 :: len(COMMANDS)]}):
        if command == "diff" and not lake.table(name).snapshots():
            continue
        assert cli(command, name, warehouse=GOLDEN).strip(), name


def test_a_config_file_names_warehouses_and_takes_secrets_from_the_environment_only(table, cli, tmp_path, monkeypatch):
    config = tmp_path / "lakeformat.toml"
    config.write_text(f'default = "here"\n[warehouses.here]\nuri = "{tmp_path / "wh"}"\n')
    assert cli("count", "shop.orders", warehouse=None).strip() == "7"
    assert cli("count", "shop.orders", warehouse="here").strip() == "7"
    config.write_text('[warehouses.s3]\nuri = "s3://b/wh"\n[warehouses.s3.options]\nsecret_access_key = "abc123"\n')
    answer = cli("ls", warehouse="s3", code=2)
    assert "a secret does not belong in a file" in answer
    assert "abc123" not in answer
    config.write_text(
        '[warehouses.s3]\nuri = "s3://b/wh"\n[warehouses.s3.options]\nsecret_access_key = "$NOT_SET_HERE"\n'
    )
    assert "the environment has no NOT_SET_HERE" in cli("ls", warehouse="s3", code=2)
    config.write_text('[warehouses.s3]\nurl = "s3://b/wh"\n')
    assert "has 'url'; it may have allowed_locations, catalog" in cli("ls", warehouse="s3", code=2)
    config.write_text("[[[")
    assert "is not TOML" in cli("ls", code=2)
    config.write_text(f'[warehouses.other]\nuri = "{tmp_path / "other"}"\n')
    assert cli.json("copy", "shop.orders", "shop.copied", "--to", "other")["rows"] == 7
    assert cli("count", "shop.copied", warehouse="other").strip() == "7"


def test_master_keys_come_from_the_environment_and_show_nowhere(cli, tmp_path, monkeypatch):
    table = Lake(tmp_path / "wh").create_table("d.t", SCHEMA, format="iceberg", properties={"format-version": "3"})
    table.append(rows([1, 2, 3], "a"))
    encrypt(tmp_path / "wh/d.db/t")
    key = base64.b64encode(MASTER["keyA"]).decode()
    assert "which was not given" in cli("count", "d.t", "--where", "id > 1", code=2)
    monkeypatch.setenv("LAKEFORMAT_ENCRYPTION_KEYS", f"other={'A' * 22}==,keyA={key}")
    assert cli("count", "d.t", "--where", "id > 1").strip() == "2"
    monkeypatch.setenv("LAKEFORMAT_ENCRYPTION_KEYS", "keyA=6d6d6d!")
    told = cli("ls", code=2)
    assert "LAKEFORMAT_ENCRYPTION_KEYS keyA: give the key in base64" in told
    assert "6d6d6d" not in told
    monkeypatch.delenv("LAKEFORMAT_ENCRYPTION_KEYS")
    monkeypatch.setenv("KEY_A", key)
    config = f'[warehouses.w]\nuri = "{tmp_path / "wh"}"\n[warehouses.w.encryption_keys]\nkeyA = '
    (tmp_path / "lakeformat.toml").write_text(config + '"$KEY_A"\n')
    assert cli("count", "d.t", "--where", "id > 1", warehouse="w").strip() == "2"
    (tmp_path / "lakeformat.toml").write_text(config + f'"{key}"\n')
    told = cli("ls", warehouse="w", code=2)
    assert "a key does not belong in a file" in told
    assert key not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "shop.nope"], "no table 'shop.nope'"),
        (["head", "shop.orders", "--where", "nope = 1"], "no column 'nope'"),
        (["head", "shop.orders", "-n", "x"], "not a valid integer|valid integer"),
        (["bogus"], "No such command 'bogus'"),
        (["count"], "Missing argument"),
        (["expire", "shop.orders", "--older-than", "5x"], "'5x' is not a time"),
        (["tag", "shop.orders", "v", "--retain", "soon"], "is not an age"),
        (["rollback", "shop.orders"], "takes one of"),
        (["--option", "region", "ls"], "write KEY=VALUE"),
        (["sweep", "shop.orders", "--older-than", "99999999999d"], "is too long an age"),
        (["doctor", "--orphans-older-than", "99999999999999999999"], "less than or equal to 36500|not in the range"),
        (["--json", "sql", "SELECT 1 AS a, 2 AS a"], "two columns of one name"),
        (["sql", " "], "has no statement"),
        (["copy", "shop.orders", "shop.\udcff", "--dry-run"], "is not UTF-8 text"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(table, cli, arguments, told):
    assert any(part in cli(*arguments, code=2) for part in told.split("|"))


WRONG = [
    "", "x", "-1", "0", "9" * 20, "1e400", "'", "null", "current", "current~99", "v1", "a..b", "1..2", "..", "2013-01-01", "7d",
    "-7d", "99999999d", "id", "id = ", "id = 'x'", "nope = 1", "*", "id,", "bucket(4, id)", "\x00", "é", "shop.orders", "shop.nope",
    "../x", "shop.", "shop.orders@nope", "sqlite:///x", "http://127.0.0.1:1", "file:///nope", "paimon", "iceberg", "--", "[red]", "$NOPE",
    "2024-02-30", "\udcff", "10000-01-01", "2024-01-01T25:61", "{", '{"a": [1,', "\ud83d", "日本 é\u202e", "a\nb", "--json", "x" * 5000, "%s", "\x1b[31m",
]  # fmt: skip


def test_whatever_is_asked_for_ends_without_a_traceback(table, cli, tmp_path):
    """Every command with arguments and options at random; a mistake is one line (which `cli` looks at), nothing else is raised,
    and `--json` prints JSON."""
    chance, table_name = random.Random(20), "shop.orders"
    table.create_tag("v1")
    commands = sorted(set(app.COMMANDS) - {"cdc"})
    for number in range(160):
        command = commands[number % len(commands)]
        arguments = ["--json", command] if number // len(commands) % 2 else [command]
        for param in getattr(app.COMMANDS[command], command).params:
            if isinstance(param, click.Option) and chance.random() < 0.6:
                continue
            wrong = (
                chance.choice([*WRONG, *[table_name] * 20])
                if param.name in ("table", "source")
                else chance.choice(WRONG)
            )
            flags = [max(param.opts, key=len)] if isinstance(param, click.Option) else []
            arguments += flags if getattr(param, "is_flag", False) else [*flags, wrong]
        printed = cli(*arguments, code=(0, 1, 2), warehouse=chance.choice([tmp_path / "wh"] * 9 + WRONG[-8:]))
        if "--json" in arguments:
            json.loads(printed)


def test_without_a_warehouse_it_says_how_to_name_one(cli):
    assert "LAKEFORMAT_WAREHOUSE" in cli("ls", warehouse=None, code=2)


def test_mistakes_are_json_where_json_was_asked_for(table, cli):
    assert "no table" in json.loads(cli("show", "shop.nope", "--json", code=2))["error"]


def test_the_console_script_runs_as_a_module_and_without_its_extra_says_which(tmp_path):
    Lake(tmp_path).create_table("a.t", SCHEMA).append(rows([1], "d0"))
    arguments = ["--warehouse", str(tmp_path), "count", "a.t"]  # A fresh process makes its first array in this.
    command = [sys.executable, "-m", "lakeformat.cli.main", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
    without = "import sys; sys.modules['click'] = None; sys.argv = ['lakeformat', 'ls']; import lakeformat.cli.main"
    done = subprocess.run([sys.executable, "-c", without], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'lakeformat[cli]'" in done.stderr


@pytest.mark.drawn(1)
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1254"])
def test_output_is_escaped_where_the_locale_has_no_such_character(tmp_path, encoding):
    Lake(tmp_path).create_table("a.t", SCHEMA).append(rows([1], "d0", "żółć 🙂"))
    (tmp_path / "q.sql").write_text("SELECT item FROM a.t WHERE item = 'żółć 🙂'", "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"}

    def call(*arguments):
        command = [sys.executable, "-m", "lakeformat.cli.main", "--warehouse", str(tmp_path), *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout.decode(
            encoding
        )

    for command in (("ls",), ("log", "a.t", "--graph"), ("head", "a.t"), ("files", "a.t", "--heat")):
        assert call(*command), command
    assert json.loads(call("--json", "sql", "--file", str(tmp_path / "q.sql"))) == [{"item": "żółć 🙂"}]


def test_sql_runs_from_an_argument_a_file_and_standard_input(table, cli, tmp_path, monkeypatch):
    count = "SELECT count(*) AS n FROM shop.orders"
    assert cli.json("sql", count) == [{"n": 7}]
    (tmp_path / "q.sql").write_text(f"DELETE FROM shop.orders WHERE id = :id; {count};")
    assert cli.json("sql", "--file", "q.sql", "--param", "id=30") == [{"n": 6}]
    monkeypatch.setattr("sys.stdin", io.StringIO(count))
    assert cli.json("sql") == [{"n": 6}]
    assert "rows_removed" in cli("sql", "DELETE FROM shop.orders WHERE id = 20")
    assert "line 1, column 8" in cli("sql", "SELECT nope FROM shop.orders", code=2)
    assert "not both" in cli("sql", count, "--file", "q.sql", code=2)
    assert "cannot be read" in cli("sql", "--file", "none.sql", code=2)
    export = f"COPY INTO '{tmp_path}/out' FROM shop.orders FILE_FORMAT = (TYPE = CSV)"
    assert "or --folder at the command line" in cli("sql", export, code=2).replace("\n", " ")
    assert [row["rows_written"] for row in cli.json("sql", export, "--folder", "/x", "--folder", str(tmp_path))] == [5]


CHANGING = [
    (r"file://\S*?/warehouse/", "warehouse/"),
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?", "TIME"),
    (r"[\d.]+ (?:B|KiB)\b", "SIZE"),
    (r"\bin \d+ ms", "in MS"),
    (r"(milliseconds|bytes_added|bytes_removed) +\d+", r"\1 N"),
    (r"[█▓▒░]+", "BAR"),
]


def steady(text):
    """Text without what differs from run to run: times, sizes, names; and folded."""
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_first_ten_minutes_of_the_page_are_as_it_shows_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEFORMAT_WAREHOUSE", "warehouse")
    monkeypatch.setenv("COLUMNS", "120")
    page = (ROOT / "docs" / "cli.md").read_text()
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(compile(block, "docs/cli.md", "exec"), {})
            continue
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            if command.startswith("lakeformat "):
                capsys.readouterr()
                run(shlex.split(command)[1:])
                assert steady("".join(capsys.readouterr())) == steady(shown), command


@pytest.mark.parametrize("home", ["home", "/proc/nowhere"])
def test_the_prompt_takes_statements_over_lines_and_keeps_them_where_it_can(table, monkeypatch, capsys, tmp_path, home):
    monkeypatch.setenv("HOME", str(tmp_path / home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("sys.stdin", Terminal())
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1 AS one,\r2 AS two;\rSELEC;\rSELECT 5 AS five; -- with a comment\r\x04")
        assert run(["--warehouse", "wh", "sql"]) == 0
    written = capsys.readouterr().out
    assert [row.split() for row in written.splitlines() if row.strip() in ("one  two", "1    2", "five", "5")] == [
        ["one", "two"],
        ["1", "2"],
        ["five"],
        ["5"],
    ]
    assert "SELEC is not a statement" in written
    (kept,) = [*tmp_path.rglob("lakeformat_history"), None][:1]
    assert (kept is not None) == (home == "home")
    assert kept is None or "2 AS two;" in kept.read_text()


VALUES = pa.table(
    {
        "n": [1, 2, 3],
        "s": ["", None, 'a\nb, "q"'],
        "f": [float("nan"), float("-inf"), None],
        "l": [[1, None], None, []],
        "b": [b"\x01", None, b""],
    }
)


@pytest.fixture
def values(tmp_path):
    return Lake(tmp_path / "wh").create_table_as("a.v", VALUES, VALUES.schema)


def test_null_differs_from_empty_text_and_a_row_is_a_line(values, cli):
    lines = cli("sql", "SELECT * FROM a.v ORDER BY n").splitlines()
    assert [line.split() for line in lines] == [
        ["n", "s", "f", "l", "b"],
        ["1", "NaN", "[1,", "null]", "01"],
        ["2", "NULL", "-Infinity", "NULL", "NULL"],
        ["3", "a\\nb,", '"q"', "NULL", "[]"],
    ]


def test_csv_is_what_pyarrow_reads_again(values, cli):
    out = cli("sql", "SELECT * FROM a.v ORDER BY n", "--csv")
    read = csv.read_csv(
        io.BytesIO(out.encode()),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, column_types={"b": pa.string()}
        ),
    )
    assert read["n"].to_pylist() == [1, 2, 3]
    assert read["s"].to_pylist() == VALUES["s"].to_pylist()
    assert read["l"].to_pylist() == ["[1, null]", None, "[]"]
    assert read["b"].to_pylist() == ["01", None, ""]
    assert cli("--csv", "head", "a.v", "-n", "1").splitlines()[0] == '"n","s","f","l","b"'
    assert cli("--csv", "ls").splitlines()[1].startswith('"a.v"')
    assert "not both" in cli("--csv", "--json", "ls", code=2)


def test_json_has_no_number_that_json_lacks(values, cli):
    assert [row["f"] for row in cli.json("sql", "SELECT f FROM a.v ORDER BY n")] == ["NaN", "-Infinity", None]
    assert [row["f"] for row in cli.json("head", "a.v")] == ["NaN", "-Infinity", None]


def test_pipes_have_every_row_on_one_line(cli, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    wide = "SELECT repeat('x', 500) AS x, id FROM range(1500)"
    lines = cli("sql", wide).splitlines()
    assert len(lines) == 1501
    assert all(len(line) > 500 for line in lines[1:])
    assert len(cli("sql", wide, "--limit", "7").splitlines()) == 8
    assert len(cli("sql", wide, "--limit", "0").splitlines()) == 1
    assert len(cli.json("sql", wide, "--limit", "1200")) == 1200


def test_every_statement_of_a_script_answers(table, cli):
    script = "CREATE TABLE shop.u (id INT); INSERT INTO shop.u VALUES (1), (2); SELECT count(*) AS n FROM shop.u"
    created, inserted, counted = cli("sql", script).split("\n\n")
    assert created == "ok"
    assert re.search(r"rows_added +2\n", inserted)
    assert counted == "n\n2\n"
    assert cli.json("sql", "DELETE FROM shop.u WHERE id = 1; SELECT * FROM shop.u") == [{"id": 2}]


def test_expanded_rows_have_a_line_a_column(table, cli):
    out = cli("sql", "SELECT id, dt FROM shop.orders WHERE id < 2 ORDER BY id", "-x")
    assert out == "id  0\ndt  d0\n\nid  1\ndt  d0\n"
    assert cli("head", "shop.orders", "--where", "id = 1", "-c", "id,dt", "--expanded") == "id  1\ndt  d0\n"


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_table_is_made_renamed_and_dropped_and_rows_are_deleted(cli, format):
    columns = "id BIGINT NOT NULL, dt STRING COMMENT 'day; of `it`'"
    options = ("--format", format, "-b", "dt", "-k", "id", "-k", "dt", "-p", "a.b=c'd\\", "--comment", "it's \\ x")
    cli("create", "shop.t`1", columns, *options)
    shown = cli.json("show", "shop.t`1")
    assert (shown["format"], shown["primary_key"], shown["partition_by"]) == (format, ["id", "dt"], ["dt"])
    assert (shown["comment"], shown["properties"]["a.b"]) == ("it's \\ x", "c'd\\")
    assert [column["comment"] for column in shown["columns"]] == [None, "day; of `it`"]
    assert "exists already" in cli("create", "shop.t`1", columns, code=2)
    assert "write KEY=VALUE" in cli("create", "shop.u", columns, "-p", "x", code=2)
    cli("sql", "INSERT INTO shop.`t``1` VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    assert "would delete 1 row of 3" in cli("delete", "shop.t`1", "--where", "id = 2", "--dry-run")
    assert cli.json("delete", "shop.t`1", "--where", "id = 2")["snapshot_id"] is not None
    assert cli.json("delete", "shop.t`1", "--where", "id = 2") == {"snapshot_id": None}
    assert [row["partition"] for row in cli.json("partitions", "shop.t`1")] == [{"dt": "a"}, {"dt": "b"}]
    name = "shop.t`1"
    if format == "paimon":
        assert cli.json("rename", name, "shop.v")["table"] == "shop.v"
        name = "shop.v"
    assert cli.json("drop", name, "--dry-run")["rows"] == 2
    assert [line["table"] for line in cli.json("ls")] == [name]
    cli("drop", name)
    assert cli.json("ls") == []


def test_a_mistyped_command_is_answered_with_its_neighbours(cli):
    assert "did you mean rename" in cli("renme", code=2)
    assert "--help lists" in cli("zzzzzz", code=2)


def test_shells_complete_commands_tables_tags_and_formats(table, tmp_path, monkeypatch, capsys):
    table.create_tag("v1")

    def offered(*words):
        monkeypatch.setenv("_LAKEFORMAT_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", shlex.join(["lakeformat", "-w", str(tmp_path / "wh"), *words]))
        monkeypatch.setenv("COMP_CWORD", str(2 + len(words)))
        with pytest.raises(SystemExit):
            run([])
        return [line.split(",")[1] for line in capsys.readouterr().out.split()]

    assert offered("par") == ["partitions"]
    assert offered("head", "shop.") == ["shop.orders"]
    assert offered("head", "shop.orders", "--tag", "v") == ["v1"]
    assert offered("copy", "shop.orders", "shop.u", "--format", "i") == ["iceberg"]
    assert offered("head", "nope") == []


def test_diff_compares_branches_and_knows_renames(table, cli):
    table.create_branch("audit")
    table.branch("audit").append(rows([99], "d9"))
    shown = cli.json("diff", "shop.orders", "current..audit")
    assert (shown["rows_before"], shown["rows_after"], shown["files_added"]) == (7, 8, 1)
    table.alter().rename_column("item", "thing").commit()
    table.append(pa.table({"id": [1], "thing": ["x"], "dt": ["d1"]}))
    assert cli.json("diff", "shop.orders")["schema"] == ["~ column item is now thing"]
    assert "not a snapshot, tag or branch" in cli("diff", "shop.orders", "nope..current", code=2)


def test_a_dry_run_names_the_files_that_go_with_a_branch(table, cli):
    table.create_branch("audit")
    table.branch("audit").append(rows([99], "d9"))
    before = state(table)
    planned = cli.json("branch", "shop.orders", "audit", "-d", "--dry-run")
    assert state(table) == before
    cli("branch", "shop.orders", "audit", "-d")
    left = {path for path, _ in state(table)[0]}
    assert {file["path"] for file in planned["files"]} == {path for path, _ in before[0]} - left
