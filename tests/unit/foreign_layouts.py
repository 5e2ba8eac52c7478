"""Python values in any of Arrow's layouts, as other libraries hand them over: views, runs, dictionaries, large, fixed-size,
extension types, sliced, at any depth."""

import pyarrow as pa

SCALARS = [pa.int64(), pa.int8(), pa.bool_(), pa.string(), pa.binary(), pa.float64(), pa.date32(), pa.decimal128(20, 3),
           pa.timestamp("us", "UTC"), pa.binary(3)]  # fmt: skip


class Labelled(pa.ExtensionType):
    """An extension type that the library does not know."""

    def __init__(self, storage):
        super().__init__(storage, "tests.labelled")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage)


def random_type(rng, depth=3, scalars=SCALARS):
    kind = rng.choice(["scalar", "scalar", "list", "struct", "map"]) if depth else "scalar"
    if kind == "list":
        return pa.list_(pa.field("element", random_type(rng, depth - 1, scalars)))
    if kind == "struct":
        return pa.struct([(f"f{i}", random_type(rng, depth - 1, scalars)) for i in range(rng.randint(1, 3))])
    if kind == "map":
        return pa.map_(rng.choice([pa.string(), pa.int64()]), random_type(rng, depth - 1, scalars))
    return rng.choice(scalars)


def random_value(rng, type, nullable=True):
    if nullable and rng.random() < 0.2:
        return None
    if pa.types.is_list(type):
        return [random_value(rng, type.value_type) for _ in range(rng.choice([0, 1, 2, 2, 5]))]
    if pa.types.is_struct(type):
        return {part.name: random_value(rng, part.type) for part in type}
    if pa.types.is_map(type):
        count = rng.choice([0, 1, 3])
        return [random_entry(rng, type) for _ in range(count)]
    text = rng.choice(["", "a", "bé", "abc", "longer than the twelve bytes of a view", "x" * 40])
    if pa.types.is_string(type):
        return text
    if pa.types.is_binary(type):
        return text.encode()
    number = rng.choice([0, 1, 2, 100])
    if pa.types.is_fixed_size_binary(type):
        return bytes([number, 0, 255])
    if pa.types.is_boolean(type):
        return number > 1
    if pa.types.is_timestamp(type) or pa.types.is_date(type):
        return pa.scalar(number, pa.int64()).cast(pa.timestamp("s")).cast(type).as_py()
    return pa.scalar(number, pa.int8()).cast(type).as_py()


def encoded(values, type, rng):
    """An array of `values`, which are of the plain type `type`, in a random layout; it may be a slice of another."""
    before, after = (rng.randint(0, 9) if rng.random() < 0.4 else 0 for _ in range(2))
    padded = [random_value(rng, type) for _ in range(before)] + values + [random_value(rng, type) for _ in range(after)]
    return _encoded(padded, type, rng).slice(before, len(values))


def _encoded(values, type, rng):
    layout = rng.choice(["other", "other", "other", "dictionary", "runs", "extension"])
    if layout == "dictionary":
        return _dictionary(values, type, rng)
    if layout == "runs":
        return _runs(values, type, rng)
    array = _by_type(values, type, rng)
    if layout == "extension":
        return pa.ExtensionArray.from_storage(Labelled(array.type), array)
    return array


def _dictionary(values, type, rng):
    distinct = []
    for value in values:
        if value not in distinct and (value is not None or rng.random() < 0.5):
            distinct.append(value)
    distinct += [random_value(rng, type) for _ in range(rng.randint(0, 2))]
    order = rng.sample(distinct, len(distinct))
    indices = [order.index(value) if value in order else None for value in values]
    kind = rng.choice([pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind), encoded(order, type, rng))


def _runs(values, type, rng):
    ends, runs = [], []
    for place, value in enumerate(values, 1):
        if runs and runs[-1] == value and rng.random() < 0.7:
            ends[-1] = place
        else:
            ends.append(place)
            runs.append(value)
    kind = rng.choice([pa.int16(), pa.int32(), pa.int64()])
    # Slices, extension types and runs are no values of runs in pyarrow's constructor.
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind), _by_type(runs, type, rng))


def _by_type(values, type, rng):
    mask = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(type):
        children = []
        for part in type:
            inner = [random_value(rng, part.type) if value is None else value[part.name] for value in values]
            children.append(encoded(inner, part.type, rng))
        fields = [pa.field(part.name, child.type) for part, child in zip(type, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_list(type):
        return _lists(values, type, rng, mask)
    if pa.types.is_map(type):
        return _maps(values, type, rng, mask)
    if pa.types.is_string(type):
        return pa.array(values, rng.choice([pa.string(), pa.large_string(), pa.string_view()]))
    if type == pa.binary():
        return pa.array(values, rng.choice([pa.binary(), pa.large_binary(), pa.binary_view()]))
    if pa.types.is_boolean(type) and rng.random() < 0.5:
        return pa.ExtensionArray.from_storage(
            pa.bool8(), pa.array([v if v is None else 3 * v for v in values], pa.int8())
        )
    return pa.array(values, type)


def _maps(values, type, rng, mask):
    before = rng.choice([0, 0, 3])  # Entries that a slice leaves out.
    pairs, offsets = [random_entry(rng, type) for _ in range(before)], [0]
    for value in values:  # A null may have entries of its own.
        pairs += [random_entry(rng, type) for _ in range(rng.randint(0, 2))] if value is None else value
        offsets.append(len(pairs) - before)
    keys = _by_type([key for key, _ in pairs], type.key_type, rng)
    items = encoded([item for _, item in pairs], type.item_type, rng)
    kind = pa.map_(keys.type, items.type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field]).slice(before)
    validity = pa.array([not is_null for is_null in mask.to_pylist()], pa.bool_()).buffers()[1]
    buffers = [validity, pa.array(offsets, pa.int32()).buffers()[1]]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[entries])


def random_entry(rng, type):
    return random_value(rng, type.key_type, False), random_value(rng, type.item_type)


def _lists(values, type, rng, mask):
    lengths = {len(value) for value in values if value is not None}
    shape = rng.choice(["list", "large_list", "list_view", "large_list_view", "fixed"])
    if shape == "fixed" and len(lengths) == 1 and lengths != {0}:
        (length,) = lengths
        inner = [item for v in values for item in (random_items(rng, type, length) if v is None else v)]
        return pa.FixedSizeListArray.from_arrays(encoded(inner, type.value_type, rng), length, mask=mask)
    if shape in ("list_view", "large_list_view"):
        inner, offsets, sizes = random_items(rng, type, 3), [], []
        order = rng.sample(range(len(values)), len(values)) if rng.random() < 0.5 else range(len(values))
        spans = {}
        for place in order:
            items = random_items(rng, type, rng.randint(0, 2)) if values[place] is None else values[place]
            if items and items == inner[: len(items)]:
                spans[place] = 0, len(items)  # Lists may share elements.
                continue
            inner += random_items(rng, type, rng.choice([0, 0, 1]))
            spans[place] = len(inner), len(items)
            inner += items
        offsets, sizes = [spans[i][0] for i in range(len(values))], [spans[i][1] for i in range(len(values))]
        kind, of = (pa.int32(), pa.ListViewArray) if shape == "list_view" else (pa.int64(), pa.LargeListViewArray)
        child = encoded(inner, type.value_type, rng)
        return of.from_arrays(pa.array(offsets, kind), pa.array(sizes, kind), child, mask=mask)
    inner, offsets = [], [0]
    for value in values:  # A null may have elements of its own.
        inner += random_items(rng, type, rng.randint(0, 2)) if value is None else value
        offsets.append(len(inner))
    child = encoded(inner, type.value_type, rng)
    if shape == "large_list":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), child, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), child, mask=mask)


def random_items(rng, type, count):
    return [random_value(rng, type.value_type) for _ in range(count)]
