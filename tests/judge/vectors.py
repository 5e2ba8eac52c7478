"""Golden vectors: chosen and seeded rows and what the Java engine 0.9 makes of them, kept in `tests/golden/vectors`.

`python -m tests.judge.vectors` (from the root of the repository) makes them anew. The values are in wire form, which
`rows.py` describes.
"""

from __future__ import annotations

import json
import random
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from .peers import Conversation

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "vectors"
ENGINE = "Apache Paimon 0.9 (paimon-python-java-bridge-0.9.0)"
COUNTS = (1, 2, 3, 7, 16, 100, 1024, 32767)
TEXTS = (
    "",
    "a",
    "seven77",
    "eight888",
    "x" * 15,
    "x" * 16,
    "é",
    "日本語",
    "日本語です",
    "😀",
    "😀😀",
    " ",
    "\x00",
    "tab\t",
    "a/b=c%",
)

ARRAY = {"type": "ARRAY", "element": "INT"}
ARRAY_OF_TEXT = {"type": "ARRAY", "element": "STRING"}
MAP = {"type": "MAP", "key": "STRING", "value": "INT"}
MULTISET = {"type": "MULTISET", "element": "STRING"}
ROW = {"type": "ROW", "fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "STRING"}]}


_WIDE = Context(prec=60)


def _plain(unscaled: int, scale: int) -> str:
    return format(Decimal(unscaled).scaleb(-scale, context=_WIDE), "f")


def _powers(scale: int, most_bytes: int) -> list[str]:
    """-2^(8k-1), its neighbours and its opposite: where the length of a minimal two's complement changes."""
    edges = [2 ** (8 * k - 1) for k in range(1, most_bytes + 1)]
    return [_plain(value, scale) for edge in edges for value in (-edge, -edge - 1, -edge + 1, edge, edge - 1)]


def _times(step: int) -> list[int]:
    """Timestamps in nanoseconds, whole multiples of `step`: the epoch, before it, usual ones, far ones."""
    seconds = (0, -1, 1, 1_704_067_200, 1_704_067_260, 1_704_067_261, -2_208_988_800, -62_135_596_800, 253_402_300_799)
    whole = [second * 10**9 for second in seconds]
    return whole + [(value + 123_456_789) // step * step for value in (0, -(10**9), 1_704_067_200 * 10**9)]


_NESTED = [
    (json.dumps(ARRAY), [[], [1], [1, None, -3], list(range(20))]),
    (json.dumps(ARRAY_OF_TEXT), [[], ["a"], ["longer than seven", None, ""]]),
    (json.dumps(MAP), [[], [["a", 1]], [["longer than seven", None], ["b", 2]]]),
    (json.dumps(MULTISET), [[], [["a", 1]], [["longer than seven", 3], ["b", 2]]]),
    (json.dumps(ROW), [[None, None], [1, "a"], [-1, "longer than seven"]]),
]
CHOSEN = [
    ("BOOLEAN", [True, False]),
    ("TINYINT", [0, 1, -1, 127, -128]),
    ("SMALLINT", [0, 1, -1, 32767, -32768]),
    ("INT", [0, 1, -1, 2**31 - 1, -(2**31)]),
    ("BIGINT", [0, 1, -1, 2**63 - 1, -(2**63)]),
    (
        "FLOAT",
        [
            0.0,
            -0.0,
            1.0,
            -1.5,
            100.0,
            10000000.0,
            0.0010000000474974513,
            0.0009765625,
            1.0000000200408773e20,
            3.4028234663852886e38,
            "NaN",
            "Infinity",
            "-Infinity",
        ],
    ),
    (
        "DOUBLE",
        [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            100.0,
            1e7,
            12345678.9,
            1e10,
            0.001,
            1e-4,
            1e100,
            4.9e-324,
            1.7976931348623157e308,
            "NaN",
            "Infinity",
            "-Infinity",
        ],
    ),
    ("DECIMAL(1, 0)", ["0", "9", "-9"]),
    ("DECIMAL(10, 2)", ["0.00", "1.00", "-1.00", "12345678.90", "-99999999.99"]),
    ("DECIMAL(18, 0)", ["0", "999999999999999999", "-999999999999999999"]),
    ("DECIMAL(18, 18)", ["0.000000000000000001", "-0.100000000000000000"]),
    ("DECIMAL(19, 0)", ["0", "1", "-1", "255", "9999999999999999999", *_powers(0, 8)]),
    ("DECIMAL(20, 2)", ["0.00", "1.00", "-1.28", "-327.68", "123456789012345678.90"]),
    ("DECIMAL(38, 0)", ["0", "9" * 38, "-" + "9" * 38, *_powers(0, 15)]),
    (
        "DECIMAL(38, 18)",
        [
            "0.000000000000000000",
            "1.000000000000000000",
            "-0.000000000000000128",
            "12345678901234567890.123456789012345678",
        ],
    ),
    ("CHAR(5)", ["abcde", "日本語です"]),
    ("VARCHAR(10)", ["", "seven77", "eight888"]),
    ("STRING", list(TEXTS)),
    ("BINARY(3)", ["000102"]),
    ("VARBINARY(9)", ["", "01020304050607", "0102030405060708", "ff" * 9]),
    ("BYTES", ["", "00", "ff" * 7, "ff" * 8, "00" * 17]),
    ("DATE", [0, 1, -1, 19723, -719162, 2932896]),
    ("TIME(0)", [0, 1000, 86_399_000]),
    ("TIME(3)", [0, 1, 86_399_999, 3_600_000]),
    ("TIMESTAMP(0)", _times(10**9)),
    ("TIMESTAMP(3)", _times(10**6)),
    ("TIMESTAMP(6)", _times(10**3)),
    ("TIMESTAMP(9)", _times(1)),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", _times(10**6)),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", _times(10**3)),
    (ARRAY, _NESTED[0][1]),
    (ARRAY_OF_TEXT, _NESTED[1][1]),
    (MAP, _NESTED[2][1]),
    (MULTISET, _NESTED[3][1]),
    (ROW, _NESTED[4][1]),
]


# Ranges of 64-bit numbers (start, count, step).
SETS = [
    [[1, 1, 1], [70000, 1, 1], [1 << 40, 1, 1], [-1, 1, 1]],
    [],
    [[0, 65536, 1]],
    [[5, 100, 1], [300, 3, 7]],
    [[0, 10000, 3]],
    [[0, 4096, 2], [1 << 33, 4097, 3]],
    *([[0, count, 3 << 16]] for count in (10, 16, 17, 48, 49)),
    [[29 * 7 << 16, 30, -(7 << 16)]],
    [[0, 60, 4 << 32]],
    [[-(1 << 62), 17, 3 << 56], [9, 5, 1 << 24], [1 << 50, 49, 1 << 16]],
]


def main() -> None:
    """Ask for every vector and write one file for each kind."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    java = Conversation("java")
    for name, make in (
        ("binary_row", binary_rows),
        ("bucket", buckets),
        ("murmur", murmur),
        ("partition_path", partition_paths),
        ("bounds", bounds),
        ("roaring64", roaring64),
    ):
        document = {"engine": ENGINE, **make(java)}
        lines = [f'"{key}": {_lines(value)}' for key, value in document.items()]
        (GOLDEN / f"{name}.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    java.close()


def binary_rows(java: Conversation) -> dict:
    """Every type alone (null, chosen values), then rows of several columns."""
    cases = [{"types": [type_], "row": [value]} for type_, values in CHOSEN for value in (None, *values)]
    cases += [
        {"types": types, "row": [draw(rng, type_) for type_ in types]}
        for rng in [random.Random(20)]
        for types in (_some_types(rng, rng.choice((1, 2, 3, 5, 8))) for _ in range(150))
    ]
    wide = ["INT"] * 56, ["INT"] * 57, ["STRING"] * 64, ["BIGINT"] * 121  # around the null bits' 8-byte steps
    cases += [
        {"types": types, "row": [None if i % 3 else draw(random.Random(i), t) for i, t in enumerate(types)]}
        for types in wide
    ]
    cases.append({"types": [], "row": []})
    answers = java.ask(verb="binary_rows", rows=cases)
    return {
        "about": "serializer: InternalRowSerializer.toBinaryRow; codegen: CodeGenUtils.newProjection. Rows without "
        "arity, in hex; the manifest form is arity as 4 big-endian bytes before the row "
        "(SerializationUtils.serializeBinaryRow), checked for all. They differ only where a NULL DECIMAL of "
        "precision > 18 or TIMESTAMP of precision > 3 reserves bytes: generated code always "
        "did, the plain serializer only since 1.2.",
        "rows": [case | _row_answer(case, answer) for case, answer in zip(cases, answers, strict=True)],
    }


def buckets(java: Conversation) -> dict:
    """Key rows of one to three columns: their hash, and their bucket for each bucket count."""
    rng = random.Random(21)
    groups = []
    for type_, values in CHOSEN:
        if isinstance(type_, str):
            groups.append(([type_], [[value] for value in (None, *values)] + [[draw(rng, type_)] for _ in range(24)]))
    for types in (
        ["INT", "STRING"],
        ["STRING", "STRING"],
        ["DATE", "BIGINT"],
        ["DECIMAL(10, 2)", "STRING"],
        ["DECIMAL(38, 10)", "TIMESTAMP(6)"],
        ["TIMESTAMP(9)", "DECIMAL(20, 0)", "STRING"],
        ["BOOLEAN", "TINYINT", "DOUBLE"],
        ["STRING", "INT", "TIMESTAMP(3)"],
        ["BYTES", "STRING"],
        ["TIMESTAMP(6) WITH LOCAL TIME ZONE", "INT"],
    ):
        groups.append((types, [[draw(rng, type_) for type_ in types] for _ in range(70)]))
    made = []
    for types, rows in groups:
        answer = java.ask(verb="buckets", types=types, rows=rows, counts=COUNTS)
        made.append({"types": types, "rows": rows, "hashes": answer["hashes"], "buckets": answer["buckets"]})
    return {
        "about": "hashes: KeyAndBucketExtractor.bucketKeyHashCode over the generated projection; "
        "buckets: FixedBucketRowKeyExtractor, for each bucket count",
        "groups": made,
    }


def murmur(java: Conversation) -> dict:
    """Byte strings of whole words and their hash, seed 42."""
    rng = random.Random(22)
    inputs = ["", "00000000", "ffffffff", "0100000000000000"] + [
        rng.randbytes(4 * rng.randint(1, 20)).hex() for _ in range(100)
    ]
    return {
        "about": "MurmurHashUtils.hashBytesByWords",
        "vectors": [list(pair) for pair in zip(inputs, java.ask(verb="murmur", bytes=inputs), strict=True)],
    }


def partition_paths(java: Conversation) -> dict:
    """One path for each chosen value of each type that may be a partition key, odd characters, and several keys."""
    odd = [
        chr(code)
        for code in (
            *range(0x30),
            *range(0x3A, 0x41),
            *range(0x5B, 0x61),
            *range(0x7B, 0x82),
            0xA0,
            0x2028,
            0x3000,
            0x1F600,
        )
    ]
    texts = [
        *TEXTS,
        *(f"x{character}y" for character in odd),
        *odd,
        "  ",
        "\t",
        "\n",
        "__DEFAULT_PARTITION__",
        "null",
        "C:\\d",
        ".",
        "..",
    ]
    cases = [{"fields": [{"name": "k", "type": "STRING"}], "row": [text]} for text in texts]
    for type_, values in CHOSEN:
        if isinstance(type_, str) and not type_.startswith(
            ("BINARY", "VARBINARY", "BYTES", "STRING", "CHAR", "VARCHAR")
        ):
            cases += [{"fields": [{"name": "k", "type": type_}], "row": [value]} for value in (None, *values)]
    cases += [
        {"fields": [{"name": "dt", "type": "DATE"}, {"name": "h", "type": "INT"}], "row": [19723, 7]},
        {"fields": [{"name": "dt", "type": "STRING"}, {"name": "h", "type": "INT"}], "row": ["2024-01-01", None]},
        {"fields": [{"name": "a=b", "type": "STRING"}, {"name": "ключ", "type": "STRING"}], "row": ["x", "y"]},
        {"fields": [{"name": "a/b c", "type": "STRING"}], "row": ["x y"]},
    ]
    paths = java.ask(verb="partition_paths", rows=cases)
    return {
        "about": "InternalRowPartitionComputer (as with partition.legacy-name=true), "
        "PartitionPathUtils.generatePartitionPath",
        "rows": [case | {"path": path} for case, path in zip(cases, paths, strict=True)],
    }


def bounds(java: Conversation) -> dict:
    """Column bounds under each metadata.stats-mode, long texts truncated."""
    long_texts = [
        ["Two roads diverged in a wood"],
        ["exactly16chars!!"],
        ["exactly16chars!!x"],
        ["z" * 15],
        ["a" * 15 + "\U0010ffff" + "b"],
        ["\U0010ffff" * 20],
        ["a" * 14 + "\U0010ffff\U0010ffff" + "b"],
        ["a" * 15 + "\ud7ff" + "b"],
        ["a" * 15 + "\uffff" + "b"],
        ["a" * 15 + "😀" + "b"],
        ["日本語日本語日本語日本語日本語日本語"],
        ["é" * 17],
        ["a" * 15 + "~b"],
        ["a" * 15 + "\x7f" + "b"],
        ["b" * 20, "a" * 20, None],
        ["", "x" * 40],
        [None, None],
        [""],
    ]
    modes = ("truncate(16)", "truncate(3)", "truncate(128)", "full", "counts", "none")
    columns = [{"type": "STRING", "mode": mode, "values": values} for mode in modes for values in long_texts]
    for type_, values in CHOSEN:
        if isinstance(type_, str):
            columns.append({"type": type_, "mode": "truncate(16)", "values": [*values, None]})
    columns += [
        {"type": type_, "mode": mode, "values": [["ff" * 20], ["00" * 16 + "01"], ["ff" * 15 + "fe" + "00"], ["ab"]][i]}
        for i in range(4)
        for type_ in ("BYTES",)
        for mode in ("truncate(16)", "full")
    ]
    for type_ in (ARRAY, MAP, ROW):
        columns.append({"type": type_, "mode": "truncate(16)", "values": [None, dict(_NESTED)[json.dumps(type_)][0]]})
    answers = java.ask(verb="bounds", columns=columns)
    return {
        "about": "SimpleColStatsCollector.from(mode), collecting the values in order. The maximum of a text cut at "
        "U+D7FF is a mistake of the engine's: the next code point is a surrogate, which has no UTF-8 "
        "form and became a question mark, below the true maximum.",
        "columns": [column | answer for column, answer in zip(columns, answers, strict=True)],
    }


def roaring64(java: Conversation) -> dict:
    """Sets of 64-bit numbers, as ranges of (start, count, step): trees of all four types of nodes, and all containers."""
    answers = java.ask(verb="roaring64", sets=SETS)
    return {
        "about": "RoaringBitmap64 (Roaring64Bitmap with runOptimize): the bytes of each set, and of its union with the first",
        "sets": [{"ranges": ranges} | answer for ranges, answer in zip(SETS, answers, strict=True)],
    }


def draw(rng: random.Random, type_: Any) -> Any:
    """A random value of this type, in wire form; one in eight is null."""
    if rng.random() < 0.125:
        return None
    if not isinstance(type_, str):
        return rng.choice(dict(_NESTED)[json.dumps(type_)])
    match type_.split("(")[0].split(" ")[0]:
        case "BOOLEAN":
            return rng.random() < 0.5
        case "TINYINT":
            return rng.randint(-(2**7), 2**7 - 1)
        case "SMALLINT":
            return rng.randint(-(2**15), 2**15 - 1)
        case "INT":
            return rng.randint(-(2**31), 2**31 - 1)
        case "BIGINT":
            return rng.randint(-(2**63), 2**63 - 1)
        case "DATE":
            return rng.randint(-100_000, 100_000)
        case "TIME":
            return rng.randrange(86_400_000)
        case "FLOAT":
            return rng.randint(-(2**20), 2**20) / 16
        case "DOUBLE":
            return rng.uniform(-1e9, 1e9)
        case "STRING" | "VARCHAR" | "CHAR":
            return "".join(rng.choice("abcdefgh éß日😀") for _ in range(rng.randint(0, 20)))
        case "BYTES" | "VARBINARY" | "BINARY":
            return rng.randbytes(rng.randint(0, 20)).hex()
        case "DECIMAL":
            precision, scale = (int(part) for part in type_[len("DECIMAL(") : -1].split(","))
            unscaled = rng.randint(-(10 ** rng.randint(1, precision)) + 1, 10 ** rng.randint(1, precision) - 1)
            return _plain(unscaled, scale)
        case "TIMESTAMP":
            step = 10 ** (9 - int(type_[len("TIMESTAMP(")]))
            return rng.randint(-(2**62), 2**62) // step * step
    raise AssertionError(type_)


def _some_types(rng: random.Random, count: int) -> list:
    return [rng.choice(CHOSEN)[0] for _ in range(count)]


def _row_answer(case: dict, answer: dict) -> dict:
    arity = len(case["types"]).to_bytes(4, "big").hex()
    assert answer["manifest"] == arity + answer["serializer"], case
    assert answer["manifest_codegen"] == arity + answer["codegen"], case
    assert _sorted_pairs(answer["back"]) == _sorted_pairs(case["row"]), (case, answer)
    return {"serializer": answer["serializer"], "codegen": answer["codegen"]}


def _sorted_pairs(row: list) -> str:
    return json.dumps([sorted(map(json.dumps, value)) if isinstance(value, list) else value for value in row]).replace(
        "-0.0", "0.0"
    )


def _lines(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"


if __name__ == "__main__":
    main()
