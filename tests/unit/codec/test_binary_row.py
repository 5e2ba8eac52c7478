"""BinaryRow against rows that Java Paimon wrote, round trips, and rows that are none."""

import json
import random
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakeformat.codec.arrow import to_arrow
from lakeformat.codec.paimon import binary_row
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.schema import Field, Kind, ListOf, MapOf, MultisetOf, Row, scalar

VECTORS = json.loads((Path(__file__).parents[2] / "golden/vectors/binary_row.json").read_text())["rows"]
NANOS = {"ms": 10**6, "us": 10**3, "ns": 1}


def type_of(text):
    """A type as Paimon's schema files spell it."""
    if isinstance(text, dict):
        part = lambda i, t: Field(i, f"f{i}", type_of(t))  # noqa: E731
        match text["type"]:
            case "ARRAY":
                return ListOf(part(0, text["element"]))
            case "MAP":
                return MapOf(part(0, text["key"]), part(1, text["value"]))
            case "MULTISET":
                return MultisetOf(part(0, text["element"]))
            case "ROW":
                return Row(tuple(Field(f["id"], f["name"], type_of(f["type"])) for f in text["fields"]))
    name, numbers, zone = re.fullmatch(r"([A-Z]+)(?:\(([\d, ]+)\))?( WITH LOCAL TIME ZONE)?", text).groups()
    kind = Kind.TIMESTAMP_TZ if zone else Kind(name.lower())
    return scalar(kind, *(int(n) for n in (numbers or "").split(",") if n))


def value_of(value, type):
    """A value of the vectors' wire form, as pa.array takes it."""
    if value is None:
        return None
    if isinstance(type, ListOf):
        return [value_of(v, type.element.type) for v in value]
    if isinstance(type, MapOf):
        return [(value_of(k, type.key.type), value_of(v, type.value.type)) for k, v in value]
    if isinstance(type, MultisetOf):
        return [(value_of(k, type.element.type), n) for k, n in value]
    if isinstance(type, Row):
        return {f.name: value_of(v, f.type) for f, v in zip(type.fields, value, strict=True)}
    match type.kind:
        case Kind.DECIMAL:
            return Decimal(value)
        case Kind.BINARY | Kind.VARBINARY | Kind.BYTES:
            return bytes.fromhex(value)
        case Kind.FLOAT | Kind.DOUBLE:
            return float(value)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            return value // NANOS[to_arrow(type).unit]
    return value


def columns_of(rows, types):
    return [pa.array([value_of(row[i], t) for row in rows], to_arrow(t)) for i, t in enumerate(types)]


def beyond(types, row):
    """Whether a timestamp is further from 1970 than 64 bits of nanoseconds reach, so that Arrow cannot hold it."""
    stamps = [value for value, type in zip(row, types, strict=True) if type == "TIMESTAMP(9)" and value is not None]
    return any(not -(2**63) <= value < 2**63 for value in stamps)


def groups():
    """Vectors of the same types together, so that one call encodes several rows."""
    found = {}
    for vector in VECTORS:
        if vector["types"] and not beyond(vector["types"], vector["row"]):
            found.setdefault(json.dumps(vector["types"]), []).append(vector)
    return found


@pytest.mark.parametrize("types", groups())
def test_rows_are_those_of_java(types):
    vectors, kinds = groups()[types], [type_of(t) for t in json.loads(types)]
    columns = columns_of([v["row"] for v in vectors], kinds)
    encoded = binary_row.encode(columns, kinds)
    assert [row.hex() for row in encoded.to_pylist()] == [v["codegen"] for v in vectors]


@pytest.mark.parametrize("written_by", ["serializer", "codegen"])
@pytest.mark.parametrize("types", [t for t in groups() if "{" not in t])
def test_rows_of_java_are_read(types, written_by):
    vectors, kinds = groups()[types], [type_of(t) for t in json.loads(types)]
    rows = binary_row.with_arity(pa.array([bytes.fromhex(v[written_by]) for v in vectors], pa.binary()), len(kinds))
    for found, wanted in zip(
        binary_row.decode(rows, kinds), columns_of([v["row"] for v in vectors], kinds), strict=True
    ):
        found.validate(full=True)
        assert found.type == wanted.type
        assert str(found) == str(wanted)  # As text, so that NaN equals NaN.


def test_every_vector_is_encoded_as_a_single_row_too():
    for vector in VECTORS:
        if beyond(vector["types"], vector["row"]):
            continue
        kinds = [type_of(t) for t in vector["types"]]
        values = [value_of(v, t) for v, t in zip(vector["row"], kinds, strict=True)]
        assert binary_row.encode_row(values, kinds).hex() == vector["codegen"], vector


def test_timestamps_beyond_arrows_nanoseconds_are_refused_by_name():
    far = [v for v in VECTORS if beyond(v["types"], v["row"])]
    assert far
    for vector in far:
        kinds = [type_of(t) for t in vector["types"]]
        rows = binary_row.with_arity(pa.array([bytes.fromhex(vector["codegen"])]), len(kinds))
        with pytest.raises(UnsupportedFeature, match="64 bits of ns"):
            binary_row.decode(rows, kinds)


def test_a_row_without_fields_is_eight_zero_bytes():
    assert binary_row.encode_row((), ()) == bytes(8)


def test_slices_and_chunks_are_encoded_as_what_they_show():
    kinds = [scalar(Kind.STRING), scalar(Kind.DECIMAL, 30, 2), ListOf(Field(0, "e", scalar(Kind.STRING)))]
    texts = ["a", "eight888", None, "seven77", "", "a longer one", "b"]
    money = [Decimal("1.25"), None, Decimal("-1.28"), Decimal(10) ** 20, Decimal(0), None, Decimal("-0.01")]
    lists = [["x"], None, [], ["longer than seven", None], ["y", "z"], [None], ["w" * 8]]
    values = [texts, money, lists]
    columns = [pa.array(v, to_arrow(k)) for v, k in zip(values, kinds, strict=True)]
    whole = binary_row.encode(columns, kinds).to_pylist()
    assert binary_row.encode([c.slice(2, 4) for c in columns], kinds).to_pylist() == whole[2:6]
    chunks = [pa.chunked_array([c.slice(0, 3), c.slice(3)]) for c in columns]
    assert binary_row.encode(chunks, kinds).to_pylist() == whole
    rows = binary_row.with_arity(binary_row.encode(columns[:2], kinds[:2]), 2)
    found = binary_row.decode(rows.slice(1, 5), kinds[:2])
    assert [f.to_pylist() for f in found] == [texts[1:6], money[1:6]]
    found = binary_row.decode(pa.chunked_array([rows.slice(0, 2), rows.slice(2)]), kinds[:2])
    assert [f.to_pylist() for f in found] == [texts, money]


@pytest.mark.parametrize("seed", range(20))
def test_few_rows_are_encoded_and_decoded_as_many(seed):
    choose = random.Random(seed)
    texts = ["", "seven77", "eight888", "äöü", "\0", "漢字漢字", "x" * 100]
    bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.DATE: 32, Kind.BIGINT: 64}
    values = {kind: [0, 1, -1, -(2 ** (n - 1)), 2 ** (n - 1) - 1] for kind, n in bits.items()} | {
        Kind.BOOLEAN: [True, False],
        Kind.TIME: [0, 86_399_999],
        Kind.FLOAT: [0.0, -0.0, 1.5, float("nan"), -float("nan"), float("-inf")],
        Kind.DOUBLE: [0.0, -0.0, 1e300, float("nan"), -float("nan"), float("-inf")],
        Kind.STRING: texts,
        Kind.BYTES: [*(text.encode() for text in texts), b"\xff\xfe"],
    }
    kinds = [scalar(choose.choice(list(values))) for _ in range(choose.choice([1, 3, 70]))]
    columns = []
    for kind in kinds:
        chosen = choose.choices([None, *values[kind.kind]], k=40)
        is_time = kind.kind in (Kind.DATE, Kind.TIME)
        column = pa.array(chosen, pa.int32() if is_time else to_arrow(kind))
        columns.append(column.cast(to_arrow(kind)) if is_time else column)
    whole = binary_row.encode(columns, kinds)
    for start, count in ((0, 1), (1, 16), (17, 5), (22, 0)):
        few = whole.slice(start, count)
        assert binary_row.encode([c.slice(start, count) for c in columns], kinds).equals(few)
        found = binary_row.decode(binary_row.with_arity(few, len(kinds)), kinds)
        assert [column.type for column in found] == [column.type for column in columns]
        assert binary_row.encode(found, kinds).equals(few)


def test_rows_that_are_null_give_nulls():
    kinds = [scalar(Kind.INT), scalar(Kind.STRING), scalar(Kind.TIMESTAMP, 6)]
    row = binary_row.encode_row([7, "seven", 1], kinds)
    rows = pa.array([None, (3).to_bytes(4, "big") + row, None], pa.binary())
    assert [f.is_valid().to_pylist() for f in binary_row.decode(rows, kinds)] == [[False, True, False]] * 3


def test_no_rows_give_no_values():
    kinds = [scalar(Kind.INT), scalar(Kind.STRING), scalar(Kind.DECIMAL, 38, 4)]
    empty = binary_row.encode([pa.array([], to_arrow(k)) for k in kinds], kinds)
    assert len(empty) == 0
    assert [len(f) for f in binary_row.decode(empty, kinds)] == [0, 0, 0]


def test_decimals_at_each_length_of_twos_complement():
    kind = scalar(Kind.DECIMAL, 38, 0)
    edges = [sign * (1 << bits) + d for bits in range(0, 120, 1) for sign in (1, -1) for d in (-1, 0, 1)]
    array = pa.array([Decimal(e) for e in edges], pa.decimal128(38, 0))
    rows = binary_row.encode([array], [kind])
    for row, value in zip(rows.to_pylist(), edges, strict=True):
        size = int.from_bytes(row[8:12], "little")
        shortest = max(1, ((value if value >= 0 else ~value).bit_length() + 8) // 8)
        assert row[16 : 16 + size] == value.to_bytes(shortest, "big", signed=True), value
    assert binary_row.decode(binary_row.with_arity(rows, 1), [kind])[0].equals(array)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_rows_give_a_named_error_or_values(seed):
    draw = random.Random(seed)
    kinds = [scalar(Kind.STRING), scalar(Kind.DECIMAL, 30, 2), scalar(Kind.TIMESTAMP, 9), scalar(Kind.INT)]
    columns = [
        pa.array(["a" * draw.randrange(30) for _ in range(20)]),
        pa.array([Decimal(draw.randrange(1 << 90)).scaleb(-2) for _ in range(20)], pa.decimal128(30, 2)),
        pa.array([draw.randrange(1 << 60) for _ in range(20)], pa.timestamp("ns")),
        pa.array(range(20), pa.int32()),
    ]
    rows = binary_row.with_arity(binary_row.encode(columns, kinds), 4).to_pylist()
    refused = 0
    for _ in range(200):
        damaged = list(rows)
        at = draw.randrange(len(rows))
        row = bytearray(damaged[at])
        row[draw.randrange(len(row))] ^= 1 << draw.randrange(8)
        damaged[at] = bytes(row[: draw.randrange(len(row) + 1)] if draw.random() < 0.3 else row)
        try:
            found = binary_row.decode(pa.array(damaged, pa.binary()), kinds)
        except (CorruptFile, UnsupportedFeature):
            refused += 1
            continue
        assert {len(f) for f in found} == {20}, f"seed {seed}"
    assert refused > 20, f"seed {seed}"


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(CorruptFile, match="2 fields where there are 1"):
        binary_row.decode(pa.array([(2).to_bytes(4, "big") + bytes(24)]), [scalar(Kind.INT)])
    with pytest.raises(CorruptFile, match="12 bytes; 1 fields take 20"):
        binary_row.decode(pa.array([bytes(12)]), [scalar(Kind.INT)])
    with pytest.raises(InvalidInput, match="tinyint"):
        binary_row.encode([pa.array([300])], [scalar(Kind.TINYINT)])
    with pytest.raises(InvalidInput, match="1 columns for 2 types"):
        binary_row.encode([pa.array([1])], [scalar(Kind.INT)] * 2)
    with pytest.raises(InvalidInput, match="'x'"):
        binary_row.encode_row(["x"], [scalar(Kind.INT)])
    with pytest.raises(UnsupportedFeature, match="variant"):
        binary_row.encode([pa.array([None], to_arrow(scalar(Kind.VARIANT)))], [scalar(Kind.VARIANT)])
    listed = ListOf(Field(0, "e", scalar(Kind.INT)))
    rows = binary_row.with_arity(binary_row.encode([pa.array([[1]])], [listed]), 1)
    with pytest.raises(UnsupportedFeature, match="array<int>"):
        binary_row.decode(rows, [listed])


def test_nan_has_one_form():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF8000000000000], np.uint64).view(np.float64)
    assert len(set(binary_row.encode([pa.array(odd)], [scalar(Kind.DOUBLE)]).to_pylist())) == 1
