"""Values belong to field ids: whatever a file's order and names of columns, in every kind of table and file format.

All columns have one type and one range of values, so that values in another's place raise no error."""

import random
import tempfile

import pyarrow as pa
import pytest

from lakeformat import Lake

EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
KINDS = {
    "iceberg": ("iceberg", {}, []),
    "iceberg merge-on-read": ("iceberg", {"write.delete.mode": "merge-on-read"}, []),
    "iceberg orc": ("iceberg", {"write.format.default": "orc"}, []),
    "iceberg avro": ("iceberg", {"write.format.default": "avro"}, []),
    "paimon": ("paimon", {}, []),
    "paimon vectors": ("paimon", {"deletion-vectors.enabled": "true"}, []),
    "paimon keyed": ("paimon", {"bucket": "2"}, ["key"]),
    "paimon tracking": ("paimon", {"row-tracking.enabled": "true"}, []),
    "paimon evolution": ("paimon", EVOLUTION, []),
    "paimon evolution orc": ("paimon", {**EVOLUTION, "file.format": "orc"}, []),
    "paimon evolution avro": ("paimon", {**EVOLUTION, "file.format": "avro"}, []),
}


class Model:
    """A table beside its rows: by key, each column's value."""

    def __init__(self, kind: str, seed: int) -> None:
        self.random = random.Random(f"{kind} {seed}")
        self.format, self.properties, key = KINDS[kind]
        self.columns, self.count, self.key = ["a", "b", "c", "d"], 4, 0
        self.rows: dict[int, dict[str, int | None]] = {}
        self.lake = Lake(tempfile.mkdtemp())
        fields = pa.schema([pa.field("key", pa.int64(), nullable=not key), *((c, pa.int64()) for c in self.columns)])
        properties = {**self.properties, "write-only": "true"} if self.format == "paimon" else self.properties
        self.table = self.lake.create_table("d.t", fields, format=self.format, primary_key=key, properties=properties)

    def some(self) -> list[str]:
        return self.random.sample(self.columns, self.random.randint(1, len(self.columns)))

    def append(self) -> None:
        keys = range(self.key, self.key + 3)
        self.key += 3
        columns = ["key", *self.columns]
        self.random.shuffle(columns)
        for key in keys:
            self.rows[key] = {"key": key, **{name: self.random.randrange(9) for name in self.columns}}
        self.table.append(pa.table({name: [self.rows[key][name] for key in keys] for name in columns}))

    def move(self) -> None:
        name, after = self.random.sample([*self.columns, "key"], 2)
        where = {"first": True} if self.random.random() < 0.5 else {"after": after}
        self.table.alter().move_column(name, **where).commit()

    def rename(self) -> None:
        name = self.random.choice(self.columns)
        self.count += 1
        self.table.alter().rename_column(name, f"n{self.count}").commit()
        self.columns[self.columns.index(name)] = f"n{self.count}"
        for row in self.rows.values():
            row[f"n{self.count}"] = row.pop(name)

    def swap_names(self) -> None:
        one, other = self.random.sample(self.columns, 2)
        for old, new in ((one, "swapping"), (other, one), ("swapping", other)):
            self.table.alter().rename_column(old, new).commit()
        for row in self.rows.values():
            row[one], row[other] = row[other], row[one]

    def replace(self) -> None:
        name = self.random.choice(self.columns)
        self.table.alter().drop_column(name).commit()
        self.table.alter().add_column(name, "bigint").commit()
        for row in self.rows.values():
            row[name] = None

    def update(self) -> None:
        targets, given, bound = self.some(), self.random.choice(self.columns), self.random.randrange(self.key or 1)
        self.table.update(dict.fromkeys(targets, f"{given} + 1"), where=f"key >= {bound}")
        for row in self.rows.values():
            if row["key"] >= bound:
                value = None if row[given] is None else row[given] + 1
                row |= dict.fromkeys(targets, value)

    def merge(self) -> None:
        if not self.rows:
            return
        keys = self.random.sample(sorted(self.rows), min(2, len(self.rows)))
        source = {"key": keys, **{name: [self.random.randrange(9) for _ in keys] for name in self.some()}}
        clause = self.table.merge_into(pa.table(source), on="t.key = s.key").when_matched()
        clause.update({name: f"s.{name}" for name in source if name != "key"}).merge()
        for index, key in enumerate(keys):
            self.rows[key] |= {name: values[index] for name, values in source.items()}

    def delete(self) -> None:
        name, value = self.random.choice(self.columns), self.random.randrange(9)
        self.table.delete(f"{name} = {value}")
        self.rows = {key: row for key, row in self.rows.items() if row[name] != value}

    def compact(self) -> None:
        self.table.compact(full=True)

    def check(self) -> None:
        asked, by = ["key", *self.some()], self.random.choice(self.columns)
        self.random.shuffle(asked)
        for value in (None, *self.random.sample(range(9), 2)):
            scan = self.table.scan(columns=asked, where=None if value is None else f"{by} = {value}")
            rows = [row for row in self.rows.values() if value is None or row[by] == value]
            expected = sorted(({name: row[name] for name in asked} for row in rows), key=lambda row: row["key"])
            assert scan.to_arrow().schema.names == asked
            assert sorted(scan.to_arrow().to_pylist(), key=lambda row: row["key"]) == expected, (asked, by, value)

    def step(self) -> None:
        steps = [self.append, self.append, self.move, self.rename, self.swap_names, self.replace]
        steps += [self.update, self.update, self.merge, self.delete, self.compact]
        self.random.choice(steps)()
        self.table = self.lake.table("d.t")
        self.check()


@pytest.mark.drawn(4)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_values_belong_to_field_ids(kind, seed):
    model = Model(kind, seed)
    model.append()
    for _ in range(8):
        model.step()


@pytest.mark.parametrize("dropped", ["a", "pair", "texts", "b"])
@pytest.mark.parametrize("to", ["iceberg", "paimon"])
def test_a_converted_table_has_the_bounds_of_its_own_columns(to, dropped):
    pair = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    fields = pa.schema([("a", pa.int64()), ("pair", pair), ("texts", pa.list_(pa.string())), ("b", pa.int64())])
    fields = fields.append(pa.field("c", pa.int64()))
    row = {"a": 1, "pair": {"x": 20, "y": 300}, "texts": ["4000"], "b": 50_000, "c": 600_000}
    lake = Lake(tempfile.mkdtemp())
    table = lake.create_table("d.t", fields, format={"iceberg": "paimon", "paimon": "iceberg"}[to])
    table.append(pa.Table.from_pylist([row], fields))
    table.alter().drop_column(dropped).commit()
    converted = lake.convert("d.t", to=to)
    del row[dropped]
    for name in {"a", "b", "c"} - {dropped}:
        assert converted.scan(where=f"{name} = {row[name]}").to_arrow().to_pylist() == [row]
