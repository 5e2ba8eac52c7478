"""A table's copy at another prefix: made ready in a staging folder, copied by the list, opened at the target."""

import csv
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake, NotFound, UnsupportedFeature, open_table
from lakeformat.engines.files import formats
from lakeformat.engines.row_level import deletes
from tests import doors

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("dt", pa.string(), False), pa.field("day", pa.date32(), False)]
)


def rows(*ids, dt="a"):
    return pa.table(
        {"id": list(ids), "dt": [dt] * len(ids), "day": pa.array(ids, pa.int32()).cast(pa.date32())}, SCHEMA
    )


def content(table, **version):
    return sorted(table.scan(["id"], **version).to_arrow()["id"].to_pylist())


def busy(lake, version, **properties):
    given = {"format-version": version, "write.delete.mode": "merge-on-read", **properties}
    table = lake.create_table(
        "d.t",
        SCHEMA,
        format="iceberg",
        partition_by=["dt", "months(day)"],
        primary_key=["id", "dt", "day"],
        properties=given,
    )
    table.append(rows(1, 2, 3, 4))
    table.append(rows(5, 6, dt="b"))
    table.delete("id = 2")
    table.create_tag("first")
    table.compute_table_stats(["id"])
    return table


def copied(made) -> list[str]:
    """Copy by the list; the targets, which no two lines share."""
    lines = list(csv.reader(Path(made.file_list.removeprefix("file://")).read_text().splitlines()))
    assert len({target for _, target in lines}) == len(lines) == made.rewritten + made.copied
    for source, target in lines:
        to = Path(target.removeprefix("file://"))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.removeprefix("file://"), to)
    return [target for _, target in lines]


@pytest.mark.parametrize(("version", "format"), [("2", "parquet"), ("2", "avro"), ("2", "orc"), ("3", "parquet")])
def test_a_copy_reads_like_the_table_and_goes_on_by_itself(tmp_path, version, format):
    lake = Lake(str(tmp_path / "w"))
    table = busy(lake, version, **{"write.delete.format.default": format})
    table.overwrite_partitions(rows(7, dt="b"))
    target = tmp_path / "elsewhere" / "d.db" / "t"
    made = table.rewrite_table_path(table.uri, f"file://{target}", staging=f"file://{tmp_path}/staging")
    copied(made)
    before, tagged = content(table), content(table, tag="first")
    shutil.rmtree(table.uri.removeprefix("file://"))
    shutil.rmtree(tmp_path / "staging")
    copy = Lake(str(tmp_path / "elsewhere")).table("d.t")
    assert (content(copy), content(copy, tag="first")) == (before, tagged) == ([1, 3, 4, 7], [1, 3, 4, 5, 6])
    assert not copy.missing_files()
    assert copy.inspect.statistics()["path"][0].as_py().startswith(f"file://{target}/")
    for path in copy.inspect.all_files()["path"].to_pylist():
        assert Path(path.removeprefix("file://")).exists(), path
    sizes = copy.inspect.delete_files()
    for path, size in zip(sizes["path"].to_pylist(), sizes["size_bytes"].to_pylist(), strict=True):
        assert Path(path.removeprefix("file://")).stat().st_size == size
        if version == "2":  # Which other engines find columns of deletes by.
            fields = formats.opened(doors.store(copy), path, format).fields(None)
            assert [field.id for field in fields] == [deletes.PATH_ID, deletes.POSITION_ID]
    copy.delete("id = 3")
    copy.compact(full=True)
    copy.expire_snapshots(retain_last=1)
    assert content(copy) == [1, 4, 7]


def test_a_later_run_copies_what_came_since(tmp_path):
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    table = busy(lake, "2")
    target = f"file://{tmp_path}/copy"
    first = table.rewrite_table_path(table.uri, target)
    copied(first)
    kept = content(open_table(f"{target}/metadata/{first.latest}"))
    table.append(rows(8, 9))
    table.delete("id = 1 or id = 8")
    stream = table.stream("job")
    stream.commit(stream.prepare(1, rows(9, dt="a")))
    second = table.rewrite_table_path(table.uri, target, start_version=first.latest)
    again = copied(second)
    old_data = {
        path.rpartition("/")[2]
        for path in open_table(f"{target}/metadata/{first.latest}").inspect.data_files()["path"].to_pylist()
    }
    assert not old_data & {path.rpartition("/")[2] for path in again}
    assert content(open_table(f"{target}/metadata/{first.latest}")) == kept == [1, 3, 4, 5, 6]
    assert content(open_table(f"{target}/metadata/{second.latest}")) == content(table) == [3, 4, 5, 6, 9]
    other = Lake(str(tmp_path / "o"), catalog="sql")
    registered = other.register_table("d.copy", f"{target}/metadata/{second.latest}")
    registered.append(rows(10))
    assert content(registered) == [3, 4, 5, 6, 9, 10]
    ended = table.rewrite_table_path(table.uri, target, end_version=first.latest)
    assert (ended.latest, ended.copied) == (first.latest, first.copied)


def test_what_cannot_be_copied_is_named(tmp_path):
    lake = Lake(str(tmp_path / "w"))
    table = busy(lake, "2")
    with pytest.raises(InvalidInput, match="is not below source_prefix"):
        table.rewrite_table_path(f"{table.uri}/data", "file:///there")
    with pytest.raises(NotFound, match="no metadata file 'v99"):
        table.rewrite_table_path(table.uri, "file:///there", end_version="v99.metadata.json")
    with pytest.raises(InvalidInput, match="not older"):
        table.rewrite_table_path(
            table.uri, "file:///there", start_version="v3.metadata.json", end_version="v2.metadata.json"
        )
    with pytest.raises(UnsupportedFeature, match="copy the folder"):
        lake.create_table("d.p", SCHEMA).rewrite_table_path(table.uri, "file:///there")
    found = lake.sql(
        "CALL system.rewrite_table_path('d.t', :source, 'file:///there')", params={"source": table.uri}
    ).to_arrow()
    assert found.column_names == ["latest_version", "file_list_location"]
