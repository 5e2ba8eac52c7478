"""One warehouse by two versions of lakeformat: `python warehouse.py make | go-on | show FOLDER`, by public names alone."""

import json
import sys

import pyarrow as pa

from lakeformat import Lake

ROWS = {"id": [1, 2, 3, 4], "amount": [1.5, 2.5, None, 4.5], "day": ["mon", "mon", "tue", "tue"]}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.float64()), ("day", pa.string())])
FORMATS = ("paimon", "iceberg")
MARKED = {
    "paimon": {"deletion-vectors.enabled": "true"},
    "iceberg": {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"},
}


def make(lake: Lake) -> None:
    for name in FORMATS:
        plain = lake.create_table(f"shop.{name}", SCHEMA, partition_by=["day"], format=name)
        plain.append(ROWS, id="load-1")
        plain.create_tag("loaded")
        plain.overwrite_partitions({"id": [5], "amount": [5.5], "day": ["mon"]}, id="load-2")
        plain.create_branch("audit")
        plain.branch("audit").append({"id": [6], "amount": [6.5], "day": ["wed"]})
        plain.delete("id = 3")
        keyed = lake.create_table(f"shop.{name}_keyed", SCHEMA, primary_key=["id"], format=name)
        stream = keyed.stream("job")
        stream.commit(stream.prepare(1, pa.table(ROWS, SCHEMA)))
        keyed.upsert({"id": [2], "amount": [20.5], "day": ["mon"]})
        marked = lake.create_table(f"shop.{name}_marked", SCHEMA, format=name, properties=MARKED[name])
        marked.append(ROWS)
        marked.delete("id = 1")
        marked.update({"amount": "amount + 1"}, where="id = 4")


def go_on(lake: Lake) -> None:
    """What was done once is not done again; then every table is changed, compacted and expired."""
    for name in FORMATS:
        plain = lake.table(f"shop.{name}")
        count = plain.scan().count()
        plain.append(ROWS, id="load-1")
        assert plain.scan().count() == count
        plain.append({"id": [7], "amount": [7.5], "day": ["thu"]}, id="load-3")
        plain.alter().add_column("note", "string").commit()
        plain.update({"note": "'late'"}, where="id = 7")
        plain.branch("audit").append({"id": [8], "amount": [8.5], "day": ["wed"]})
        keyed = lake.table(f"shop.{name}_keyed")
        stream = keyed.stream("job")
        assert stream.last_committed() == 1
        stream.commit(stream.prepare(2, pa.table({"id": [9], "amount": [9.5], "day": ["mon"]}, SCHEMA)))
        keyed.delete("id = 1")
        marked = lake.table(f"shop.{name}_marked")
        marked.delete("id = 2")
        for table in (plain, keyed, marked):
            table.compact()
            table.expire_snapshots(retain_last=1)


def show(lake: Lake) -> None:
    """The rows of every table, of the tag and of the branch, as a line of JSON."""
    scans = {}
    for name in FORMATS:
        plain = lake.table(f"shop.{name}")
        scans |= {name: plain.scan(), f"{name} loaded": plain.scan(tag="loaded")}
        scans |= {f"{name} audit": plain.branch("audit").scan()}
        scans |= {f"{name} {kind}": lake.table(f"shop.{name}_{kind}").scan() for kind in ("keyed", "marked")}
    print(json.dumps({name: scan.to_arrow().sort_by("id").to_pylist() for name, scan in scans.items()}))


if __name__ == "__main__":
    {"make": make, "go-on": go_on, "show": show}[sys.argv[1]](Lake(sys.argv[2]))
