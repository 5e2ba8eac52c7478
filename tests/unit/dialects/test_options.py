"""Table options by name: a misspelt key is refused with the right spelling, a user's own key is kept, and a key on which
lakeformat does not act is logged once. Tables of other engines keep whatever they have."""

import ast
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInput, Lake, UnsupportedFeature
from lakeformat.dialects.iceberg import options as iceberg
from lakeformat.dialects.paimon import options as paimon
from lakeformat.model.option import Option

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.int64())])
DOCUMENTED = {"paimon": paimon.DOCUMENTED, "iceberg": iceberg.DOCUMENTED}
MISSPELT = [
    ("paimon", "snapshot.time-retaind", "'snapshot.time-retained'"),
    ("paimon", "snapshot.num-retain.max", "'snapshot.num-retained.max'"),
    ("paimon", "Bucket", "'bucket'"),
    ("paimon", "merge_engine", "'merge-engine'"),
    ("paimon", "targetfilesize", "'target-file-size'"),
    ("paimon", "deletion-vector.enabled", "'deletion-vectors.enabled'"),
    ("paimon", "fields.price.agregate-function", "'fields.price.aggregate-function'"),
    ("paimon", "file-index.bloomfilter.columns", "'file-index.bloom-filter.columns'"),
    ("paimon", "write-buffer-sizes", "'write-buffer-size'"),
    ("paimon", "lakeformat.accepted-option", "'lakeformat.accepted-options'"),
    ("iceberg", "write.delete.mdoe", "'write.delete.mode'"),
    ("iceberg", "write.target-file-size", "'write.target-file-size-bytes'"),
    ("iceberg", "format_version", "'format-version'"),
    ("iceberg", "gc.enable", "'gc.enabled'"),
    ("iceberg", "write.metadata.metrics.colum.price", "'write.metadata.metrics.column.price'"),
    ("iceberg", "write.parquet.bloom-filter-enable.column.id", "'write.parquet.bloom-filter-enabled.column.id'"),
    ("iceberg", "write.upsert.enable", "'write.upsert.enabled'"),
    (
        "iceberg",
        "write.parquet.compression",
        "'write.parquet.compression-codec' or 'write.parquet.compression-level'",
    ),
    ("iceberg", "lakeformat.anything", "those of lakeformat are lakeformat.compact.delete-file-threshold"),
]
OWN = [
    "owner",
    "my.team.tag",
    "created_by",
    "team",
    "pii",
    "domain",
    "retention.days",
    "source.system",
    "data.owner",
    "quality.tier",
    "lineage.source",
    "dbt.model",
    "schedule",
    "cost-center",
    "branch.owner",
    "write.team",
    "snapshot.owner",
    "tag.owner",
    "sort.key",
    "bucket.name",
    "commit.author",
    "fields.id.owner",
    "updated_at",
    "log.level",
    "my.feature",
    "trino.stored-orderings",
    "transient_lastDdlTime",
    "consumer.team",
]


@pytest.fixture(autouse=True)
def warnings_alone(caplog):
    """Whatever a test before has set, commits say nothing here."""
    caplog.set_level("WARNING", "lakeformat")


@pytest.fixture
def lake(tmp_path):
    return Lake(str(tmp_path))


@pytest.mark.parametrize(("format", "key", "meant"), MISSPELT)
def test_a_misspelt_option_is_refused_with_the_right_spelling(lake, format, key, meant):
    with pytest.raises(InvalidInput, match=re.escape(meant)):
        lake.create_table("a.b", SCHEMA, format=format, properties={key: "1"})
    assert not lake.exists("a.b")
    table = lake.create_table("a.b", SCHEMA, format=format)
    with pytest.raises(InvalidInput, match=re.escape(meant)):
        table.alter().set_properties({key: "1"}).commit()
    assert key not in table.schema.properties


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_users_own_option_is_kept_and_rows_are_written(lake, caplog, format):
    own = dict.fromkeys(OWN, "x")
    table = lake.create_table("a.b", SCHEMA, format=format, properties=own)
    table.alter().set_properties({"my.other": "true"}).commit()
    table.append(pa.table({"id": [1], "price": [2]}))
    assert {**own, "my.other": "true"}.items() <= table.schema.properties.items()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("format", "key"),
    [
        ("paimon", "write-buffer-size"),
        ("paimon", "sink.parallelism"),
        ("paimon", "file-index.range-bitmap.columns"),
        ("paimon", "parquet.bloom.filter.enabled"),
        ("iceberg", "write.spark.accept-any-schema"),
        ("iceberg", "write.parquet.bloom-filter-enabled.column.id"),
    ],
)
def test_an_option_that_only_others_act_on_is_logged_once(lake, caplog, format, key):
    table = lake.create_table("a.b", SCHEMA, format=format, properties={key: "1"})
    assert len(caplog.messages) == 1
    for part in (table.uri, repr(key), "does not act on it"):
        assert part in caplog.text
    table.alter().set_properties({key: "2"}).commit()
    table.append(pa.table({"id": [1], "price": [2]}))
    assert lake.table("a.b").scan().count() == 1
    assert len(caplog.messages) == 1
    lake.create_table("a.c", SCHEMA, format=format, properties={key: "1"})  # Another table.
    assert len(caplog.messages) == 2


def _paimon_of_others(lake, options):
    table = lake.create_table("a.b", SCHEMA)
    path = Path(table.uri.removeprefix("file://")) / "schema" / "schema-0"
    document = json.loads(path.read_text())
    document["options"] |= options
    path.write_text(json.dumps(document))
    return lake.table("a.b")


def _iceberg_of_others(lake, options):
    table = lake.create_table("a.b", SCHEMA, format="iceberg")
    path = next((Path(table.uri.removeprefix("file://")) / "metadata").glob("*.metadata.json"))
    document = json.loads(path.read_text())
    document["properties"] |= options
    path.write_text(json.dumps(document))
    return lake.table("a.b")


@pytest.mark.parametrize("of_others", [_paimon_of_others, _iceberg_of_others])
def test_a_table_of_others_is_read_written_and_altered_whatever_its_options_are(lake, caplog, of_others):
    odd = {"snapshot.time-retaind": "1 h", "write.delete.mdoe": "x", "sink.parallelism": "3", "my.team.tag": "t"}
    odd |= {"write.spark.accept-any-schema": "true", "write-buffer-size": "9"}
    table = of_others(lake, odd)
    table.append(pa.table({"id": [1], "price": [2]}))
    table.alter().set_properties({"owner": "me"}).commit()
    table.alter().remove_properties("my.team.tag").commit()
    assert table.scan().count() == 1
    assert table.schema.properties["owner"] == "me"
    assert table.schema.properties["snapshot.time-retaind"] == "1 h"
    assert caplog.messages == []


def test_an_unknown_switch_of_a_paimon_table_of_others_is_read_and_not_written_unless_accepted(lake):
    table = _paimon_of_others(lake, {"row-lineage-2.enabled": "true"})
    assert table.scan().count() == 0
    with pytest.raises(UnsupportedFeature, match="accepted-options"):
        table.append(pa.table({"id": [1], "price": [2]}))
    with pytest.raises(InvalidInput, match="accepted-options"):
        lake.create_table("a.c", SCHEMA, properties={"row-lineage-2.enabled": "true"})
    properties = {"row-lineage-2.enabled": "true", "lakeformat.accepted-options": "row-lineage-2.enabled"}
    lake.create_table("a.d", SCHEMA, properties=properties).append(pa.table({"id": [1], "price": [2]}))


@pytest.mark.parametrize(("key", "argument"), [("primary-key", "primary_key="), ("partition", "partition_by=")])
def test_keys_and_partitions_are_arguments_and_no_options(lake, key, argument):
    with pytest.raises(InvalidInput, match=argument):
        lake.create_table("a.b", SCHEMA, properties={key: "id"})


def test_block_sizes_are_honoured(lake):
    rows = pa.table({"id": range(400_000), "price": range(400_000)})
    groups = {}
    for format, key in (("paimon", "file.block-size"), ("iceberg", "write.parquet.row-group-size-bytes")):
        for name, properties in (("one", {}), ("many", {key: str(1 << 20)})):
            table = lake.create_table(f"{format}.{name}", SCHEMA, format=format, properties=properties)
            table.append(rows)
            (file,) = Path(table.uri.removeprefix("file://")).rglob("*.parquet")
            groups[format, name] = pa.parquet.ParquetFile(file).num_row_groups
    assert groups["paimon", "one"] == groups["iceberg", "one"] == 1
    assert min(groups["paimon", "many"], groups["iceberg", "many"]) > 1, groups


def test_every_declared_option_is_acted_on():
    """An attribute is read somewhere; a key that is read as text is named outside the declarations."""
    root = Path(lakeformat.__file__).parent
    trees = {path: list(ast.walk(ast.parse(path.read_text()))) for path in root.rglob("*.py")}
    read = {node.attr for nodes in trees.values() for node in nodes if isinstance(node, ast.Attribute)}
    declarations = {root / "dialects" / format / "options.py" for format in DOCUMENTED}
    named = strings_of(node for path, nodes in trees.items() if path not in declarations for node in nodes)
    composed = re.compile(  # Keys that code puts together, or that the declarations themselves refuse or read.
        r"write\.(delete|update|merge)\.(mode|isolation-level)|write\.(delete\.)?\w+\.compression-(codec|level)|comment"
        r"|write\.metadata\.metrics\.column\.\*|write\.(data|folder-storage|object-storage)\.path"
        r"|(aggregation|partial-update)\.remove-record-on-delete|([\w-]+\.)?ignore-delete|lakeformat\.accepted-options"
        r"|(fields|file-index|metadata\.iceberg\.rest)\..*"
    )
    for format, module in (("paimon", paimon), ("iceberg", iceberg)):
        attributes = {option.key: name for name, option in vars(module.read).items() if isinstance(option, Option)}
        assert [key for key, name in attributes.items() if name not in read] == []
        by_key = {key for key in module.HEEDED.keys() - attributes.keys() if not composed.fullmatch(key)}
        assert by_key - named <= set(module.REFUSED)
        own = (path for path in trees if path.parent.name == format and path not in declarations)
        elsewhere = strings_of(node for path in own for node in trees[path])
        assert elsewhere & module.DOCUMENTED.ignored <= {"branch", "path"}  # Columns of our own metadata tables too.


def strings_of(nodes):
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
