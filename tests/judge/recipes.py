"""How each kind of table comes about: columns, layout, and the steps done to it. Every engine follows the same text.

A step is a dict with `do`; values are in wire form (`golden/wire.py`), rows in the order of the columns at that step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FORMATS = ("parquet", "orc", "avro")

Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A table to be made: `columns` are (name, Paimon type) pairs, a type as schema files spell it."""

    name: str
    columns: tuple[tuple[str, Any], ...]
    steps: tuple[Step, ...]
    partition_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    def fields(self) -> list[dict]:
        """The columns with the ids they get in a fresh table, as a schema file has them."""
        numbered, next_id = [], 0
        for name, type_ in self.columns:
            numbered.append({"id": next_id, "name": name, "type": None})
            next_id += 1
            numbered[-1]["type"], next_id = number(type_, next_id)
        return numbered


def request(recipe: Recipe) -> dict:
    """The recipe as the engines' `write` verb takes it."""
    # To roll back takes a snapshot's id: the ids count from 1, the steps from 0, and each step before it made one.
    steps = [{**step, "snapshot": step["step"] + 1} if step["do"] == "rollback" else step for step in recipe.steps]
    return {
        "fields": recipe.fields(),
        "partition_by": list(recipe.partition_by),
        "primary_key": list(recipe.primary_key),
        "options": dict(recipe.options),
        "comment": recipe.comment,
        "steps": steps,
    }


def number(type_: Any, next_id: int) -> tuple[Any, int]:
    """The type with its nested ROW fields numbered from `next_id`, and the next free number."""
    if isinstance(type_, str):
        return type_, next_id
    kind = type_["type"].split(" ")[0]
    if kind == "ROW":
        fields = []
        for part in type_["fields"]:
            own, next_id = next_id, next_id + 1
            inner, next_id = number(part["type"], next_id)
            fields.append({"id": own, "name": part["name"], "type": inner})
        return {**type_, "fields": fields}, next_id
    changed = dict(type_)
    for part in ("element", "key", "value"):
        if part in type_:
            changed[part], next_id = number(type_[part], next_id)
    return changed, next_id


def append(*rows: list) -> Step:
    return {"do": "append", "rows": list(rows)}


def overwrite_partitions(*rows: list) -> Step:
    return {"do": "overwrite_partitions", "rows": list(rows)}


def overwrite(*rows: list, **partition: Any) -> Step:
    return {"do": "overwrite", "rows": list(rows), "partition": partition}


def delete(where: str, *ids: int) -> Step:
    """Rows deleted by a condition; `ids` are the rows it means, by their first column."""
    return {"do": "delete", "where": where, "ids": list(ids)}


def update(column: str, value: Any, where: str, *ids: int) -> Step:
    """A text column set by a condition; `ids` as in `delete`."""
    said = {"set": {column: f"'{value}'"}, "column": column, "value": value}
    return {"do": "update", **said, "where": where, "ids": list(ids)}


def overwrite_where(where: str, ids: list[int], *rows: list) -> Step:
    """What a condition selects replaced by rows; `ids` as in `delete`."""
    return {"do": "overwrite_where", "where": where, "ids": ids, "rows": list(rows)}


def alter(*changes: list) -> Step:
    return {"do": "alter", "changes": list(changes)}


def array(element: Any) -> dict:
    return {"type": "ARRAY", "element": element}


def map_(key: Any, value: Any) -> dict:
    return {"type": "MAP", "key": key, "value": value}


def multiset(element: Any) -> dict:
    return {"type": "MULTISET", "element": element}


def row(**fields: Any) -> dict:
    return {"type": "ROW", "fields": [{"name": name, "type": type_} for name, type_ in fields.items()]}


COMPACT: Step = {"do": "compact"}
TRUNCATE: Step = {"do": "truncate"}
SALES = (("id", "BIGINT"), ("item", "STRING"), ("price", "DECIMAL(10, 2)"), ("dt", "STRING"), ("hour", "INT"))

# Two values for each scalar type; a third row holds nothing but nulls. A dict of type -> (values).
SCALARS = {
    "BOOLEAN": (True, False),
    "TINYINT": (-128, 127),
    "SMALLINT": (-32768, 32767),
    "INT": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "FLOAT": (-1.5, 3.4028234663852886e38),
    "DOUBLE": (0.1, -1.7976931348623157e308),
    "DECIMAL(10, 2)": ("-1.28", "99999999.99"),
    "DECIMAL(18, 0)": ("-999999999999999999", "0"),
    "DECIMAL(38, 18)": ("-12345678901234567890.123456789012345678", "0.000000000000000128"),
    "CHAR(5)": ("abcde", "日本語です"),
    "VARCHAR(20)": ("", "exactly twenty chars"),
    "STRING": ("😀 and a tail that is longer than sixteen", "\x00 nul"),
    "BINARY(4)": ("00000000", "ff00ff80"),
    "VARBINARY(16)": ("", "00" * 16),
    "BYTES": ("", "ff" * 40),
    "DATE": (-719162, 2932896),
    "TIME(3)": (0, 86_399_999),
    "TIMESTAMP(0)": (-1_000_000_000, 1_704_067_200_000_000_000),
    "TIMESTAMP(3)": (-86_399_000_000_000, 1_704_067_200_123_000_000),
    "TIMESTAMP(6)": (-86_399_000_000_000, 1_704_067_200_123_456_000),
    "TIMESTAMP(9)": (1, 1_704_067_200_123_456_789),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": (-86_399_000_000_000, 1_704_067_200_123_000_000),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": (-86_399_000_000_000, 1_704_067_200_123_456_000),
}
NESTED = {
    "numbers": (array("INT"), [1, None, -3], []),
    "texts": (array("STRING"), ["a", "", "longer than seven"], [None]),
    "attributes": (map_("STRING", "INT"), [["a", 1], ["b", None]], []),
    "by_number": (map_("INT NOT NULL", "DECIMAL(10, 2)"), [[1, "1.00"], [2, None]], [[-1, "-0.01"]]),
    "point": (row(x="DOUBLE", y="DOUBLE", label="STRING"), [1.5, None, "p"], [None, -0.5, None]),
    "deep": (
        array(row(key="STRING", values=map_("STRING", array("BIGINT")), at="TIMESTAMP(6)")),
        [["k", [["a", [1, 2]], ["b", []]], 1_704_067_200_123_456_000], ["only", [], None]],
        [["last", None, 0]],
    ),
}
# What not every format or engine takes has a table of its own.
BINARIES = ("BINARY(4)", "VARBINARY(16)", "BYTES")
NANOSECONDS = ("TIMESTAMP(9)",)


def column_name(type_: str) -> str:
    """A column's name out of its type: DECIMAL(10, 2) -> decimal_10_2."""
    kept = "".join(character if character.isalnum() else " " for character in type_.lower())
    return "_".join(kept.replace("with local time zone", "ltz").split())


def scalars(file_format: str) -> Recipe:
    """Every scalar type, with its extremes and with nulls, in two commits."""
    return _two_commits(
        f"scalars_{file_format}", [t for t in SCALARS if t not in (*BINARIES, *NANOSECONDS)], file_format
    )


def binaries(file_format: str) -> Recipe:
    """Bytes: of fixed length, of limited length, of any length."""
    return _two_commits(f"binaries_{file_format}", list(BINARIES), file_format)


def nanoseconds(file_format: str) -> Recipe:
    """Timestamps of nine digits beside one of six."""
    return _two_commits(f"nanoseconds_{file_format}", [*NANOSECONDS, "TIMESTAMP(6)"], file_format)


def _two_commits(name: str, types: list[str], file_format: str) -> Recipe:
    low, high = ([SCALARS[type_][i] for type_ in types] for i in (0, 1))
    return Recipe(
        name,
        tuple((column_name(type_), type_) for type_ in types),
        (append(low, [None] * len(types)), append(high)),
        options={"file.format": file_format},
    )


def nested(file_format: str) -> Recipe:
    """ARRAY, MAP and ROW, inside each other, empty, null and holding nulls."""
    # Avro's maps have keys of text.
    kept = {name: of for name, of in NESTED.items() if file_format != "avro" or name != "by_number"}
    return Recipe(
        f"nested_{file_format}",
        (("id", "INT"), *((name, type_) for name, (type_, _, _) in kept.items())),
        (
            append([1, *(one for _, one, _ in kept.values())], [2, *(other for _, _, other in kept.values())]),
            append([3] + [None] * len(kept)),
        ),
        options={"file.format": file_format},
    )


def multisets(file_format: str) -> Recipe:
    """MULTISET, which few engines know."""
    return Recipe(
        f"multisets_{file_format}",
        (("id", "INT"), ("bag", multiset("STRING"))),
        (append([1, [["x", 2], ["y", 1]]], [2, []], [3, None]),),
        options={"file.format": file_format},
    )


def hollow(file_format: str) -> Recipe:
    """A ROW that is there and holds nothing but nulls is not a null; nor is one inside an ARRAY."""
    return Recipe(
        f"hollow_{file_format}",
        (("id", "INT"), ("point", row(x="DOUBLE", y="DOUBLE")), ("points", array(row(x="DOUBLE")))),
        (append([1, [None, None], [[None], None, [1.5]]], [2, None, None], [3, [0.5, None], []]),),
        options={"file.format": file_format},
    )


def before_epoch(file_format: str) -> Recipe:
    """Fractions of a second before 1970."""
    return _times(f"before_epoch_{file_format}", (3, 6), -86_399_876_543_211, file_format)


def last_second(file_format: str) -> Recipe:
    """Fractions of the last second before 1970."""
    return _times(f"last_second_{file_format}", (3, 6), -1, file_format)


def nanoseconds_before_epoch(file_format: str) -> Recipe:
    """Nanoseconds before 1970."""
    return _times(f"nanoseconds_before_epoch_{file_format}", (9,), -86_399_876_543_211, file_format)


def _times(name: str, digits: tuple[int, ...], nanos: int, file_format: str) -> Recipe:
    zones = ("", " WITH LOCAL TIME ZONE") if digits != (9,) else ("",)
    types = [(f"TIMESTAMP({n}){zone}", nanos // 10 ** (9 - n) * 10 ** (9 - n)) for zone in zones for n in digits]
    return Recipe(
        name,
        tuple((column_name(type_), type_) for type_, _ in types),
        (append([value for _, value in types]),),
        options={"file.format": file_format},
    )


def not_null(file_format: str) -> Recipe:
    """Columns that refuse nulls, comments on the table."""
    return Recipe(
        f"not_null_{file_format}",
        (("id", "BIGINT NOT NULL"), ("name", "STRING NOT NULL"), ("score", "DOUBLE")),
        (append([1, "a", None], [2, "", 0.5]),),
        options={"file.format": file_format},
        comment="what may not be null",
    )


def partitioned(file_format: str) -> Recipe:
    """Two keys; null, empty, blank, odd and non-ASCII values; three commits."""
    return Recipe(
        f"partitioned_{file_format}",
        SALES,
        (
            append(
                [1, "apple", "1.00", "2024-01-01", 0], [2, "fig", None, "2024-01-01", 1], [3, None, "3.50", None, 0]
            ),
            append([4, "pear", "0.01", "", 0], [5, "kiwi", "-1.00", "  ", None], [6, "plum", "9.99", "a/b=c%d:e", 5]),
            append([7, "lime", "7.00", "2024-01-01", 0], [8, "sloe", "8.00", "日本 é", 23], [9, "x", None, None, None]),
        ),
        partition_by=("dt", "hour"),
        options={"file.format": file_format},
    )


def bucketed(file_format: str) -> Recipe:
    """A fixed number of buckets over two key columns."""
    rng = random.Random(11)
    rows = [[i, f"name {i % 13}" if i % 7 else None, rng.randint(0, 99)] for i in range(60)]
    return Recipe(
        f"bucketed_{file_format}",
        (("id", "INT"), ("name", "STRING"), ("score", "INT")),
        (append(*rows[:40]), append(*rows[40:])),
        options={"file.format": file_format, "bucket": "4", "bucket-key": "id,name"},
    )


def bucketed_by_nulls(file_format: str) -> Recipe:
    """Partitions and buckets; bucket keys whose nulls reserve bytes in a binary row."""
    rng = random.Random(12)
    amounts = [None if rng.random() < 0.5 else f"{rng.randint(-999, 999)}.25" for _ in range(40)]
    times = [None if rng.random() < 0.5 else rng.randint(0, 2**40) * 1000 for _ in range(40)]
    rows = [[i, amounts[i], times[i], f"p{i % 2}"] for i in range(40)]
    return Recipe(
        f"bucketed_by_nulls_{file_format}",
        (("id", "INT"), ("amount", "DECIMAL(20, 2)"), ("at", "TIMESTAMP(6)"), ("p", "STRING")),
        (append(*rows),),
        partition_by=("p",),
        options={"file.format": file_format, "bucket": "3", "bucket-key": "amount,at"},
    )


def evolved(file_format: str) -> Recipe:
    """Columns added, renamed, dropped, widened, moved and added again under an old name, with rows written between."""
    return Recipe(
        f"evolved_{file_format}",
        (("a", "INT"), ("b", "FLOAT"), ("c", "STRING"), ("d", "DECIMAL(10, 2)"), ("p", "STRING")),
        (
            append([1, 0.5, "one", "1.00", "x"], [2, None, None, None, "y"]),
            alter(["add", "e", "BIGINT"], ["rename", "c", "text"]),
            append([3, 1.5, "three", "3.00", "x", 33]),
            alter(["type", "a", "BIGINT"], ["type", "b", "DOUBLE"], ["type", "d", "DECIMAL(20, 2)"]),
            append([2**40, 0.1, "four", "123456789012345678.00", "y", 44]),
            alter(["drop", "text"], ["drop", "e"]),
            append([5, 5.5, "5.00", "x"]),
            alter(["add", "text", "STRING", None], ["add", "e", "INT", "a"], ["move", "d", None]),
            append(["6.00", "six", 6, 66, 6.5, "z"]),
        ),
        partition_by=("p",),
        options={"file.format": file_format},
    )


def evolved_bare(file_format: str) -> Recipe:
    """A schema that changed after the last commit: no snapshot uses it yet."""
    return Recipe(
        f"evolved_bare_{file_format}",
        (("a", "INT"), ("b", "STRING")),
        (append([1, "one"], [2, None]), alter(["add", "c", "DATE"], ["rename", "b", "text"], ["set", "owner", "me"])),
        options={"file.format": file_format},
    )


def overwritten(file_format: str) -> Recipe:
    """Dynamic overwrite: the partitions that the rows hold; then one without any row, which changes nothing."""
    return Recipe(
        f"overwritten_{file_format}",
        SALES,
        (
            append([1, "a", "1.00", "d1", 0], [2, "b", "2.00", "d1", 1], [3, "c", "3.00", "d2", 0]),
            append([4, "d", None, None, 0]),
            overwrite_partitions([5, "e", "5.00", "d1", 0], [6, "f", "6.00", "d3", 0]),
            append([7, "g", "7.00", "d1", 0]),
            overwrite_partitions([8, "h", "8.00", "d2", 0], [9, "i", None, None, 0]),
            overwrite_partitions(),
        ),
        partition_by=("dt", "hour"),
        options={"file.format": file_format},
    )


def overwritten_static(file_format: str) -> Recipe:
    """Static overwrite: a full spec, a partial one, one without rows."""
    rows = [[i, f"r{i}", f"{i}.00", f"d{i % 3}", i % 2] for i in range(12)]
    return Recipe(
        f"overwritten_static_{file_format}",
        SALES,
        (
            append(*rows),
            overwrite([100, "full", "1.00", "d0", 0], dt="d0", hour=0),
            overwrite([101, "partial", "2.00", "d1", 7], dt="d1"),
            overwrite(dt="d2", hour=1),
        ),
        partition_by=("dt", "hour"),
        options={"file.format": file_format},
    )


def overwritten_whole(file_format: str) -> Recipe:
    """The whole of an unpartitioned table replaced, then of a table left with nothing, then filled again."""
    return Recipe(
        f"overwritten_whole_{file_format}",
        (("id", "INT"), ("name", "STRING")),
        (append([1, "a"], [2, "b"]), overwrite([3, "c"]), TRUNCATE, append([4, "d"])),
        options={"file.format": file_format},
    )


def emptied(file_format: str) -> Recipe:
    """A table that had rows and has none."""
    return Recipe(
        f"emptied_{file_format}",
        SALES,
        (append([1, "a", "1.00", "d1", 0]), TRUNCATE),
        partition_by=("dt", "hour"),
        options={"file.format": file_format},
    )


def untouched(file_format: str) -> Recipe:
    """A table that no snapshot was ever made of."""
    return Recipe(f"untouched_{file_format}", SALES, (), partition_by=("dt",), options={"file.format": file_format})


def dropped(file_format: str) -> Recipe:
    """Partitions dropped, by a full and by a partial spec."""
    rows = [[i, f"r{i}", None, f"d{i % 3}", i % 2] for i in range(12)]
    return Recipe(
        f"dropped_{file_format}",
        SALES,
        (
            append(*rows),
            {"do": "drop_partitions", "partitions": [{"dt": "d0", "hour": 0}]},
            {"do": "drop_partitions", "partitions": [{"dt": "d1"}]},
        ),
        partition_by=("dt", "hour"),
        options={"file.format": file_format},
    )


def compacted(file_format: str) -> Recipe:
    """Eight small files per partition made one, with rows appended after."""
    commits = [append([i, f"r{i}", f"{i}.50", "d1", 0], [100 + i, None, None, "d2", 0]) for i in range(8)]
    return Recipe(
        f"compacted_{file_format}",
        SALES,
        (*commits, COMPACT, append([999, "late", None, "d1", 0])),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def compacted_buckets(file_format: str) -> Recipe:
    """Compaction within fixed buckets."""
    commits = [append(*([10 * i + j, f"r{i}"] for j in range(6))) for i in range(6)]
    return Recipe(
        f"compacted_buckets_{file_format}",
        (("id", "INT"), ("name", "STRING")),
        (*commits, COMPACT),
        options={"file.format": file_format, "bucket": "2", "bucket-key": "id"},
    )


def compacted_evolved(file_format: str) -> Recipe:
    """Files of three schemas compacted into one file of the latest."""
    return Recipe(
        f"compacted_evolved_{file_format}",
        (("a", "INT"), ("b", "STRING")),
        (
            append([1, "x"]),
            append([2, "y"]),
            alter(["add", "c", "DOUBLE"], ["rename", "b", "text"]),
            append([3, "z", 0.5]),
            alter(["type", "a", "BIGINT"], ["drop", "text"]),
            append([4, 4.5]),
            append([5, None]),
            COMPACT,
        ),
        options={"file.format": file_format},
    )


def expired(file_format: str) -> Recipe:
    """Old snapshots expired after overwrites: their data files are gone."""
    rows = [([i, f"r{i}", None, "d1", 0], [i, f"s{i}", None, f"d{i % 2 + 2}", 0]) for i in range(6)]
    steps = [overwrite_partitions(*pair) for pair in rows]
    return Recipe(
        f"expired_{file_format}",
        SALES,
        (*steps, {"do": "expire", "retain_last": 2}),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def tagged(file_format: str) -> Recipe:
    """A tag that keeps a snapshot readable after it was overwritten and expired, and the schema moved on."""
    return Recipe(
        f"tagged_{file_format}",
        (("id", "INT"), ("name", "STRING")),
        (
            append([1, "a"], [2, "b"]),
            {"do": "tag", "name": "v1"},
            overwrite([3, "c"]),
            alter(["add", "extra", "INT"]),
            append([4, "d", 44]),
            {"do": "tag", "name": "v2"},
            append([5, "e", 55]),
            {"do": "expire", "retain_last": 1},
        ),
        options={"file.format": file_format},
    )


def deleted(file_format: str) -> Recipe:
    """Rows deleted and changed by rewriting their files."""
    rows = [[i, f"r{i}", f"{i}.00", f"d{i % 2}", i % 3] for i in range(20)]
    return Recipe(
        f"deleted_{file_format}",
        SALES,
        (
            append(*rows[:10]),
            append(*rows[10:]),
            delete("id >= 5 and id < 15 and dt = 'd1'", 5, 7, 9, 11, 13),
            update("item", "changed", "id % 4 = 0", 0, 4, 8, 12, 16),
            delete("dt = 'd0'", 0, 2, 4, 6, 8, 10, 12, 14, 16, 18),
        ),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def deleted_from_buckets(file_format: str) -> Recipe:
    """Rows deleted and changed in a table with buckets, after its schema moved on."""
    return Recipe(
        f"deleted_from_buckets_{file_format}",
        (("id", "INT"), ("name", "STRING")),
        (
            append(*([i, f"r{i}"] for i in range(30))),
            alter(["add", "score", "DOUBLE"], ["rename", "name", "label"]),
            append([30, "r30", 0.5], [31, None, None]),
            delete("id in (3, 30)", 3, 30),
            update("label", "changed", "id < 3", 0, 1, 2),
        ),
        options={"file.format": file_format, "bucket": "3", "bucket-key": "id"},
    )


def marked(file_format: str) -> Recipe:
    """Rows deleted and changed by deletion vectors of 32 bits, some of them twice in a file."""
    made = deleted(file_format)
    return replace(
        made,
        name=f"marked_{file_format}",
        steps=(*made.steps[:4], delete("id = 1", 1), append([100, "late", "1.00", "d1", 0])),
        options={**made.options, "deletion-vectors.enabled": "true"},
    )


def marked_widely(file_format: str) -> Recipe:
    """The same by vectors of 64 bits, and a partition that goes whole."""
    made = marked(file_format)
    steps = (*made.steps, delete("dt = 'd0'", 0, 2, 4, 6, 8, 10, 12, 14, 16, 18))
    options = {**made.options, "deletion-vectors.bitmap64": "true"}
    return replace(made, name=f"marked_widely_{file_format}", steps=steps, options=options)


def marked_in_buckets(file_format: str) -> Recipe:
    """Deletion vectors in buckets, then a compaction of what they left."""
    made = deleted_from_buckets(file_format)
    return replace(
        made,
        name=f"marked_in_buckets_{file_format}",
        steps=(*made.steps, delete("id in (5, 6, 7)", 5, 6, 7), append([40, "late", 1.5]), delete("id = 8", 8)),
        options={**made.options, "deletion-vectors.enabled": "true"},
    )


def marked_and_compacted(file_format: str) -> Recipe:
    """Deletion vectors, and files without the rows that they took."""
    made = marked(file_format)
    late = (COMPACT, delete("id = 3", 3), append([101, "later", "2.00", "d0", 0]))
    return replace(made, name=f"marked_and_compacted_{file_format}", steps=(*made.steps, *late))


def overwritten_where(file_format: str) -> Recipe:
    """What a condition selects replaced: whole partitions, then rows inside files."""
    rows = [[i, f"r{i}", None, f"d{i % 4}", i % 2] for i in range(16)]
    return Recipe(
        f"overwritten_where_{file_format}",
        SALES,
        (
            append(*rows),
            overwrite_where("dt >= 'd2'", [2, 3, 6, 7, 10, 11, 14, 15], [100, "new", "1.00", "d3", 0]),
            overwrite_where("id < 6 and dt = 'd0'", [0, 4], [5, "five", None, "d0", 1]),
        ),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def declared(file_format: str) -> Recipe:
    """Declared partitions replaced: one with rows, one without, a null one; and words in the snapshot."""
    said = {"run": "7", "note": '"quoted" é'}
    return Recipe(
        f"declared_{file_format}",
        SALES,
        (
            append([1, "a", None, "d1", 0], [2, "b", None, "d2", 0], [3, "c", None, None, 0], [4, "d", None, "d4", 0]),
            {
                **overwrite_partitions([5, "e", None, "d1", 0]),
                "with": {
                    "partitions": [{"dt": "d1"}, {"dt": "d2"}, {"dt": None}],
                    "id": "run / step / d1:d2",
                    "properties": said,
                },
                "emptied": ["d2", None],
            },
            {**append([6, "f", None, "d4", 0]), "with": {"watermark": 1_704_067_200_000, "id": "a second id"}},
        ),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def swept(file_format: str) -> Recipe:
    """Compacted, expired, and what nothing names any more removed."""
    commits = [append([i, f"r{i}", None, f"d{i % 2}", 0]) for i in range(8)]
    return Recipe(
        f"swept_{file_format}",
        SALES,
        (
            *commits,
            {"do": "tag", "name": "before"},
            COMPACT,
            overwrite_partitions([100, "o", None, "d1", 0]),
            {"do": "expire", "retain_last": 1},
            {"do": "sweep"},
        ),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def rolled_back(file_format: str) -> Recipe:
    """The table taken back to its second snapshot, then written again."""
    return Recipe(
        f"rolled_back_{file_format}",
        (("id", "INT"), ("name", "STRING")),
        (
            append([1, "a"]),
            append([2, "b"]),
            append([3, "c"]),
            {"do": "rollback", "step": 1},
            append([4, "d"]),
        ),
        options={"file.format": file_format},
    )


def many_commits(file_format: str) -> Recipe:
    """Enough commits that manifests are merged on the way."""
    commits = [append([i, f"r{i}", None, f"d{i % 3}", i % 2]) for i in range(36)]
    return Recipe(
        f"many_commits_{file_format}",
        SALES,
        (*commits, overwrite_partitions([1000, "o", None, "d1", 0]), append([1001, "p", None, "d2", 1])),
        partition_by=("dt",),
        options={"file.format": file_format, "manifest.merge-min-count": "8"},
    )


def many_rows(file_format: str) -> Recipe:
    """Rows enough for several pages, stripes or blocks."""
    rng = random.Random(13)
    names = ["red", "green", None, "a longer name of a colour"]
    rows = [[i, rng.choice(names), f"{rng.randint(0, 10**6)}.25", f"d{i % 2}", i % 24] for i in range(6_000)]
    return Recipe(
        f"many_rows_{file_format}",
        SALES,
        (append(*rows),),
        partition_by=("dt",),
        options={"file.format": file_format},
    )


def keyed(file_format: str) -> Recipe:
    """A primary key: the last row of a key is the one that counts."""
    return Recipe(
        f"keyed_{file_format}",
        (("id", "BIGINT NOT NULL"), ("name", "STRING"), ("dt", "STRING NOT NULL")),
        (
            append([1, "a", "d1"], [2, "b", "d1"], [1, "c", "d2"]),
            append([2, "b again", "d1"], [3, None, "d1"]),
            append([1, None, "d2"]),
        ),
        partition_by=("dt",),
        primary_key=("id", "dt"),
        options={"file.format": file_format, "bucket": "2"},
    )


def keyed_by_many(file_format: str) -> Recipe:
    """A primary key of several columns, no partitions, and values that come and go."""
    rows = [[i % 7, f"k{i % 3}", f"{i % 2}.50", 19_000 + i, None if i % 5 == 0 else i] for i in range(60)]
    return Recipe(
        f"keyed_by_many_{file_format}",
        (
            ("a", "INT NOT NULL"),
            ("b", "STRING NOT NULL"),
            ("c", "DECIMAL(9, 2) NOT NULL"),
            ("d", "DATE"),
            ("v", "BIGINT"),
        ),
        (append(*rows[:20]), append(*rows[20:40]), append(*rows[40:])),
        primary_key=("a", "b", "c"),
        options={"file.format": file_format, "bucket": "3"},
    )


def keyed_overwritten(file_format: str) -> Recipe:
    """A primary key, and partitions replaced whole in between."""
    return replace(
        keyed(file_format),
        name=f"keyed_overwritten_{file_format}",
        steps=(
            append([1, "a", "d1"], [2, "b", "d1"], [1, "c", "d2"]),
            append([2, "b again", "d1"]),
            overwrite_partitions([5, "e", "d1"], [6, "f", "d1"], [7, "g", "d3"]),
            append([5, "e again", "d1"], [8, None, "d3"]),
            overwrite([9, "i", "d2"], dt="d2"),
        ),
    )


def keyed_growing(file_format: str) -> Recipe:
    """A primary key, and buckets that grow with the keys."""
    made = keyed_compacted(file_format)
    given = {"file.format": file_format, "bucket": "-1", "dynamic-bucket.target-row-num": "4"}
    return replace(made, name=f"keyed_growing_{file_format}", options=given)


def keyed_thin(file_format: str) -> Recipe:
    """A primary key that files hold once."""
    made = keyed(file_format)
    return replace(made, name=f"keyed_thin_{file_format}", options={**made.options, "data-file.thin-mode": "true"})


def keyed_compacted(file_format: str) -> Recipe:
    """A primary key, versions of rows merged for good, and newer ones on top."""
    return replace(
        keyed(file_format),
        name=f"keyed_compacted_{file_format}",
        steps=(
            *(append(*([i, f"r{i} of {turn}", f"d{i % 2}"] for i in range(turn, 12))) for turn in range(3)),
            COMPACT,
            append([5, "late", "d1"], [50, None, "d0"]),
        ),
    )


def keyed_marked(file_format: str) -> Recipe:
    """A primary key, and deletion vectors for the older versions of rows."""
    made = keyed(file_format)
    return replace(
        made,
        name=f"keyed_marked_{file_format}",
        steps=(
            append(*([i, f"r{i}", f"d{i % 2}"] for i in range(40))),
            append(*([i, f"r{i} again", f"d{i % 2}"] for i in range(0, 40, 5))),
            append([5, "once more", "d1"], [50, None, "d0"]),
            COMPACT,
            append([7, "late", "d1"], [50, "late", "d0"]),
        ),
        options={**made.options, "bucket": "1", "deletion-vectors.enabled": "true"},
    )


def keyed_marked_growing(file_format: str) -> Recipe:
    """The same with buckets that grow, and rows deleted and changed."""
    made = keyed_marked(file_format)
    return replace(
        made,
        name=f"keyed_marked_growing_{file_format}",
        steps=(
            *made.steps,
            delete("id in (5, 6, 50)", 5, 6, 50),
            update("name", "changed", "id between 10 and 12", 10, 11, 12),
            append([6, "back", "d0"]),
        ),
        options={**made.options, "bucket": "-1", "dynamic-bucket.target-row-num": "8"},
    )


def keyed_evolved(file_format: str) -> Recipe:
    """A primary key, and files of several schemas to merge."""
    return replace(
        keyed(file_format),
        name=f"keyed_evolved_{file_format}",
        steps=(
            append([1, "a", "d1"], [2, "b", "d1"]),
            alter(["add", "x", "INT"], ["rename", "name", "label"]),
            append([2, "b again", "d1", 7]),
            alter(["type", "x", "BIGINT"]),
            append([3, "c", "d1", 2**40]),
        ),
    )


def keyed_changed(file_format: str) -> Recipe:
    """A primary key, and rows deleted, changed and put back."""
    return replace(
        keyed(file_format),
        name=f"keyed_changed_{file_format}",
        steps=(
            append(*([i, f"r{i}", f"d{i % 2}"] for i in range(10))),
            delete("name in ('r1', 'r4', 'r8')", 1, 4, 8),
            update("name", "changed", "id between 2 and 3", 2, 3),
            append([4, "back", "d0"]),
        ),
    )


def partitioned_by(type_: str) -> Recipe:
    """One partition key of the given type: its values, and null."""
    low, high = SCALARS[type_]
    return Recipe(
        f"partitioned_by_{column_name(type_)}",
        (("id", "INT"), ("k", type_)),
        (append([1, low], [2, high], [3, None]), overwrite_partitions([4, high])),
        partition_by=("k",),
        options={"file.format": "parquet"},
    )


KINDS = (
    scalars,
    binaries,
    nanoseconds,
    nested,
    multisets,
    hollow,
    before_epoch,
    last_second,
    nanoseconds_before_epoch,
    not_null,
    partitioned,
    bucketed,
    bucketed_by_nulls,
    evolved,
    evolved_bare,
    overwritten,
    overwritten_static,
    overwritten_whole,
    emptied,
    untouched,
    dropped,
    compacted,
    compacted_buckets,
    compacted_evolved,
    expired,
    tagged,
    rolled_back,
    many_commits,
    many_rows,
    keyed,
    keyed_by_many,
    keyed_overwritten,
    keyed_thin,
    keyed_compacted,
    keyed_evolved,
    keyed_marked,
)
KEY_TYPES = tuple(type_ for type_ in SCALARS if not type_.startswith(("BINARY", "VARBINARY", "BYTES")))
# Avro knows no nanoseconds.
RECIPES = (
    *(kind(each) for kind in KINDS for each in FORMATS if each != "avro" or "nanoseconds" not in kind.__name__),
    *(partitioned_by(type_) for type_ in KEY_TYPES),
)
# What only lakeformat has a verb for.
OUR_KINDS = (
    keyed_changed,
    keyed_marked_growing,
    keyed_growing,
    deleted,
    deleted_from_buckets,
    marked,
    marked_widely,
    marked_in_buckets,
    marked_and_compacted,
    overwritten_where,
    declared,
    swept,
)
OUR_RECIPES = tuple(kind(each) for kind in OUR_KINDS for each in FORMATS)


def with_options(recipe: Recipe, name: str, **options: str) -> Recipe:
    """The same table under another name and with further options."""
    return replace(recipe, name=name, options={**recipe.options, **options})
