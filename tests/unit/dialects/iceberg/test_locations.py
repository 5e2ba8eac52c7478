"""Where Iceberg tables put their files: `write.data.path`, `write.metadata.path`, `write.object-storage.*`."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat import InvalidInput, Lake
from lakeformat.dialects.iceberg.layout import Scattered
from tests import doors

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
OLD = datetime.timedelta(days=-1)  # Older than tomorrow: everything.


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids)})


def content(table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def made(tmp_path: Path, catalog: str | None = "sql", **properties: str):
    lake = Lake(str(tmp_path / "w"), catalog=catalog)
    given = {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()}
    return lake, lake.create_table("d.t", SCHEMA, format="iceberg", partition_by=["dt"], properties=given)


@pytest.mark.parametrize(  # The hashes that pyiceberg's and Java's tests have.
    ("name", "entropy"),
    [
        ("a", "0101/0110/1001/10110010"),
        ("b", "1110/0111/1110/00000011"),
        ("c", "0010/1101/0110/01011111"),
        ("d", "1001/0001/0100/01110011"),
    ],
)
def test_the_hash_of_a_path_is_that_of_other_engines(name, entropy):
    assert Scattered("data")("", name) == f"data/{entropy}/{name}"
    assert Scattered("data", with_partitions=False)("p=1", name) == f"data/{entropy}-{name}"
    assert Scattered("s3://b/x", "d/t", False)("p=1", name) == f"s3://b/x/{entropy}/d/t/{name}"


def test_scattered_files_begin_with_a_hash_and_every_verb_works(tmp_path):
    _, table = made(
        tmp_path, None, write_object__storage_enabled="true", write_delete_mode="merge-on-read", format__version="3"
    )
    table.append(rows(1, 2, 3))
    table.append(rows(4, dt="b"))
    table.delete("id = 2")
    folder = Path(table.uri.removeprefix("file://"))
    data = sorted(below(folder / "data"))
    assert [name.rpartition(".")[2] for name in data].count("puffin") == 1, data
    assert all(name[:20].replace("/", "").strip("01") == "" and name[24:29] in ("dt=a/", "dt=b/") for name in data), (
        data
    )
    assert content(table) == [1, 3, 4]
    table.compact(full=True)
    table.expire_snapshots(retain_last=1)
    assert content(table) == [1, 3, 4]
    assert below(folder / "data") == {path.split("/data/")[1] for path in table.inspect.files()["path"].to_pylist()}
    lost = folder / "data/0000/1111/0000/00000000/dt=a/00000-0-00000000-0000-0000-0000-000000000000-00001.parquet"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"x")
    assert [orphan.path for orphan in table.remove_orphan_files(OLD)] == [str(lost.relative_to(folder))]
    table.alter().set_properties({"write.object-storage.partitioned-paths": "false"}).commit()
    before = below(folder / "data")
    table.append(rows(5))
    (new,) = below(folder / "data") - before
    assert (new.count("/"), new[23], "dt=" in new) == (3, "-", False), new


@pytest.mark.parametrize("inside", [False, True], ids=["elsewhere", "in the folder"])
@pytest.mark.parametrize("scattered", ["false", "true"])
def test_files_go_where_the_properties_say_and_go_with_their_snapshots(tmp_path, inside, scattered):
    lake, table = made(tmp_path)
    root = Path(table.uri.removeprefix("file://")) if inside else tmp_path
    data, metadata = root / "my data", root / "my metadata"
    table.alter().set_properties(
        {
            "write.data.path": f"file://{data}/",
            "write.metadata.path": str(metadata),
            "write.object-storage.enabled": scattered,
            "write.delete.mode": "merge-on-read",
        }
    ).commit()
    table.append(rows(1, 2, 3))
    table.append(rows(4, dt="b"))
    table.delete("id = 2")
    table.overwrite_partitions(rows(5, dt="b"))
    own = Path(table.uri.removeprefix("file://"))
    assert not (own / "data").exists()
    assert len(below(data)) == 4
    if scattered == "true" and not inside:
        assert all("/d.db/t/dt=" in name for name in below(data)), below(data)
    kinds = {name.rpartition(".")[2] for name in below(metadata)}
    assert kinds == {"json", "avro"}
    assert len(below(own / "metadata")) == 2
    assert content(Lake(str(tmp_path / "w"), catalog="sql").table("d.t")) == [1, 3, 5]

    stranger = data / "00000-0-00000000-0000-0000-0000-000000000000-00001.parquet"
    stranger.write_bytes(b"x")
    swept = table.remove_orphan_files(OLD)
    assert (stranger.name in str(swept)) is inside
    assert stranger.exists() is not inside
    table.compact(full=True)
    gone = table.expire_snapshots(retain_last=1)
    assert sum(map(len, gone.waves)) > 5
    assert content(table) == [1, 3, 5]
    live = {Path(path.removeprefix("file://")).name for path in table.inspect.files()["path"].to_pylist()}
    assert {Path(name).name for name in below(data)} - {stranger.name} == live
    assert not table.missing_files()

    twin, record = table.dry_run()
    twin.append(rows(6))
    assert content(twin) == [1, 3, 5, 6]
    assert content(table) == [1, 3, 5]
    assert record.written

    lake.drop_table("d.t", purge=True)
    assert below(data) == ({stranger.name} if stranger.exists() else set())
    assert not below(metadata)
    assert not below(own)


def test_a_stream_and_equality_deletes_reach_the_data_path(tmp_path):
    lake = Lake(str(tmp_path / "w"), catalog="sql")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("dt", pa.string())])
    table = lake.create_table(
        "d.t", schema, format="iceberg", primary_key=["id"], properties={"write.data.path": f"file://{tmp_path}/far"}
    )
    stream = table.stream("job")
    stream.commit(stream.prepare(1, rows(1, 2)))
    stream.abort(stream.prepare(2, rows(9)))
    stream.commit(stream.prepare(3, rows(2, dt="new")))
    assert content(table) == [1, 2]
    assert len(below(tmp_path / "far")) == 4


def test_nothing_is_written_outside_the_places_that_a_table_names(tmp_path):
    _, table = made(tmp_path, write_data_path=f"file://{tmp_path}/far")
    store = doors.runner(table).reach(doors.view(table))
    with pytest.raises(InvalidInput, match="outside the root"):
        store.write(f"file://{tmp_path}/farther/x", b"x")
    with pytest.raises(InvalidInput, match="outside the root"):
        store.delete([f"file://{tmp_path}/w/catalog.sqlite"])
