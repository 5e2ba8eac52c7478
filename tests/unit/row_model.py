"""What merging must give, one row at a time in plain Python, as Java does it: the oracle of the merge kernels."""

from __future__ import annotations

import math
import struct
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from lakeformat.model.work import Aggregation, MergeSpec

RETRACTS = (1, 3)


class Refused(Exception):
    """The engine cannot merge these rows."""


NONSENSE = object()  # What comes of what cannot be added or taken back; it goes only where the whole row is removed.


def merge(rows: list[dict], spec: MergeSpec, types: dict[str, Any] | None = None) -> list[dict]:
    """One row per key. `types`: for numbers, "int8" to "int64", "float", "double" or (precision, scale)."""
    by_key: dict[tuple, list[dict]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[name] for name in spec.key), []).append(row)
    merged = []
    for key in sorted(by_key):
        own = [r for r in by_key[key] if not (spec.ignore_delete and r["_VALUE_KIND"] in RETRACTS)]
        own.sort(key=lambda row: row["_SEQUENCE_NUMBER"])
        for name in reversed(spec.sequence):
            nulls = [row for row in own if row[name] is None]
            known = [row for row in own if row[name] is not None]
            known.sort(key=lambda row: row[name], reverse=not spec.is_ascending)  # Stable, also where it is reversed.
            own = nulls + known
        if len(own) == 1:
            merged += own
        elif own:
            row = ENGINES[spec.engine](own, spec, types or {})
            if NONSENSE in row.values():
                raise Refused
            merged.append(row)
    return merged


def deduplicate(rows: list[dict], spec: MergeSpec, types: dict) -> dict:
    return rows[-1]


def first_row(rows: list[dict], spec: MergeSpec, types: dict) -> dict:
    if any(row["_VALUE_KIND"] in RETRACTS for row in rows):
        raise Refused
    return rows[0]


def partial_update(rows: list[dict], spec: MergeSpec, types: dict) -> dict:
    names = [n for n in rows[0] if n not in {"_SEQUENCE_NUMBER", "_VALUE_KIND", *spec.key}]
    functions = {each.column: Function(each, types.get(each.column)) for each in spec.aggregations}
    group_of = {name: group for group in spec.groups for name in (*group.columns, *group.sequence)}
    row: dict = dict.fromkeys(names)
    inserted = gone = False
    for given in rows:
        kind, gone = given["_VALUE_KIND"], False
        retracts = kind in RETRACTS
        if retracts and not spec.groups:
            if not spec.remove_on_delete:
                raise Refused
            if kind == 3:
                gone, row = True, dict.fromkeys(names)
            continue
        done: set[str] = set()
        for name in names:
            group, function = group_of.get(name), functions.get(name)
            if group is None:
                if not retracts and given[name] is not None:
                    row[name] = given[name]
                continue
            if name in done or all(given[f] is None for f in group.sequence):
                continue
            if order(given, group) >= order(row, group):
                if name in group.sequence:
                    if kind == 3 and group.removes_record:
                        gone, row = True, dict.fromkeys(names)
                        for each in functions.values():
                            each.begun = False
                        break
                    for field in group.sequence:
                        row[field] = given[field]
                        done.add(field)
                elif retracts:
                    row[name] = None if function is None else function.retract(row[name], given[name])
                else:
                    row[name] = given[name] if function is None else function.add(row[name], given[name])
            elif function is not None:
                if retracts:
                    row[name] = function.retract(row[name], given[name])
                else:
                    row[name] = function.add_older(row[name], given[name])
        inserted = inserted or not retracts
    return {**rows[-1], **row, "_VALUE_KIND": 3 if gone or not inserted else 0}


def aggregation(rows: list[dict], spec: MergeSpec, types: dict) -> dict:
    names = [n for n in rows[0] if n not in {"_SEQUENCE_NUMBER", "_VALUE_KIND", *spec.key}]
    rules = {each.column: each for each in spec.aggregations}
    rules |= {name: Aggregation(name, "last_value") for name in spec.sequence}
    functions = {n: Function(rules.get(n, Aggregation(n, "last_non_null_value")), types.get(n)) for n in names}
    row: dict = dict.fromkeys(names)
    gone = False
    for given in rows:
        gone = spec.remove_on_delete and given["_VALUE_KIND"] == 3
        if gone:
            row = dict.fromkeys(names)
            for each in functions.values():
                each.begun = False
            continue
        for name, function in functions.items():
            step = function.retract if given["_VALUE_KIND"] in RETRACTS else function.add
            row[name] = step(row[name], given[name])
    return {**rows[-1], **row, "_VALUE_KIND": 3 if gone else 0}


def order(row: dict, group) -> tuple:
    return tuple((row[name] is not None, row[name] or 0) for name in group.sequence)


class Function:
    """An aggregate function with its state."""

    def __init__(self, how: Aggregation, kind: Any) -> None:
        self.how, self.kind, self.begun = how, kind, False

    def add(self, old, new):
        if NONSENSE in (old, new):
            return NONSENSE
        try:
            return getattr(self, f"_{self.how.function}")(old, new)
        except Refused:
            return NONSENSE

    def add_older(self, old, new):
        if self.how.function == "collect":
            return self.add(old, new)
        if self.how.function.startswith("nested") and old is None:
            return None if new is None else self.add(new, [])
        return self.add(new, old)

    def retract(self, old, new):
        if self.how.ignore_retract:
            return old
        function = getattr(self, f"_retract_{self.how.function}", None)
        return NONSENSE if function is None or old is NONSENSE else function(old, new)

    def _fit(self, value):
        if value is NONSENSE:
            return value
        if isinstance(self.kind, tuple):
            precision, scale = self.kind
            with localcontext() as context:
                context.prec = 80
                value = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
            return value if len(value.as_tuple().digits) <= precision else None
        if self.kind.startswith("int"):
            bits = int(self.kind[3:])
            return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        if self.kind == "float":
            try:
                return struct.unpack("f", struct.pack("f", value))[0]
            except OverflowError:
                return math.copysign(math.inf, value)
        return value

    def _number(self, old, new, step):
        if old is None or new is None:
            return new if old is None else old
        with localcontext() as context:
            context.prec = 80
            return self._fit(step(old, new))

    def _sum(self, old, new):
        return self._number(old, new, lambda a, b: a + b)

    def _retract_sum(self, old, new):
        return self._sum(
            old, None if new is None else new.copy_negate() if isinstance(new, Decimal) else self._fit(-new)
        )

    def _product(self, old, new):
        return self._number(old, new, lambda a, b: a * b)

    def _retract_product(self, old, new):
        if isinstance(self.kind, tuple) and new is not None:
            return NONSENSE
        return self._number(old, new, self._divide)

    def _divide(self, a, b):
        if self.kind.startswith("int"):
            if b == 0:
                return NONSENSE
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if b == 0:
            return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
        return a / b

    def _max(self, old, new):
        return new if old is None else old if new is None or not old < new else new

    def _min(self, old, new):
        return new if old is None else old if new is None or not new < old else new

    def _last_value(self, old, new):
        return new

    def _retract_last_value(self, old, new):
        return None

    def _last_non_null_value(self, old, new):
        return old if new is None else new

    def _retract_last_non_null_value(self, old, new):
        return old if new is None else None

    def _first_value(self, old, new):
        if self.begun:
            return old
        self.begun = True
        return new

    def _first_non_null_value(self, old, new):
        if self.begun or new is None:
            return old
        self.begun = True
        return new

    def _bool_and(self, old, new):
        return old if new is None else new if old is None else old and new

    def _bool_or(self, old, new):
        return old if new is None else new if old is None else old or new

    def _listagg(self, old, new):
        if new is None or not new.strip():
            return old
        if old is None or not old.strip():
            return new
        if not self.how.distinct:
            return old + self.how.delimiter + new
        there = set(old.split(self.how.delimiter))
        for part in new.split(self.how.delimiter):
            if part.strip() and part not in there:
                there.add(part)
                old += self.how.delimiter + part
        return old

    def _collect(self, old, new):
        if old is None and new is None:
            return None
        both = (old or []) + (new or [])
        return unique(both) if self.how.distinct else both

    def _retract_collect(self, old, new):
        if old is None or new is None:
            return old
        left = list(old)
        for item in new:
            if item in left:
                left.remove(item)
        return left

    def _merge_map(self, old, new):
        if old is None or new is None:
            return new if old is None else old
        return sorted((dict(old) | dict(new)).items())

    def _merge_map_with_keytime(self, old, new):
        if old is None or new is None:
            return new if old is None else old
        merged = dict(old)
        for key, row in new:
            if row is None:
                merged.pop(key, None)
                continue
            time = row[self.how.time]
            there = merged.get(key)
            if time is not None and (
                there is None or (then := there[self.how.time]) is None or _utf16(time) > _utf16(then)
            ):
                merged[key] = row
        return sorted(merged.items())

    def _retract_merge_map(self, old, new):
        if old is None or new is None:
            return old
        return [pair for pair in old if pair[0] not in dict(new)]

    def _nested_update(self, old, new):
        if new is None:
            return old
        limit = math.inf if self.how.limit is None else self.how.limit
        if not self.how.nested_key:
            old = self._rows(old)
            return old + self._rows(new)[: max(int(min(limit, 99)) - len(old), 0)]
        by_key: dict[tuple, dict] = {}
        for is_new, rows in enumerate((self._rows(old), self._rows(new))):
            for row in rows:
                key = self._nested_key(row)
                if key in by_key:
                    if self._order(row) >= self._order(by_key[key]):
                        by_key[key] = row
                elif not is_new or len(by_key) < limit:
                    by_key[key] = row
        return list(by_key.values())

    def _retract_nested_update(self, old, new):
        if old is None or new is None:
            return old
        names = self.how.nested_key or tuple(old[0] if old else ())
        gone = [tuple(item[name] for name in names) for item in new if item is not None]
        return [item for item in old if tuple(item[name] for name in names) not in gone]

    def _nested_partial_update(self, old, new):
        if new is None:
            return old
        by_key: dict[tuple, dict] = {}
        for item in self._rows(old) + self._rows(new):
            row = by_key.setdefault(self._nested_key(item), dict.fromkeys(item))
            row.update({name: value for name, value in item.items() if value is not None})
        return list(by_key.values())

    def _rows(self, rows):
        """Those that are no null and have a whole key, where they need one."""
        rows = [row for row in rows or [] if row is not None]
        if self.how.null_keys == "merge":
            return rows
        whole = [row for row in rows if None not in self._nested_key(row)]
        if self.how.null_keys == "error" and whole != rows:
            raise Refused
        return whole

    def _nested_key(self, row):
        return tuple(row[name] for name in self.how.nested_key)

    def _order(self, row):
        return tuple((row[name] is not None, row[name] or 0) for name in self.how.nested_sequence)

    def _rbm32(self, old, new):
        return new if old is None else old if new is None else old | new

    _rbm64 = _rbm32


def _utf16(text: str) -> bytes:
    """What Java's strings are compared by."""
    return text.encode("utf-16-be")


def unique(values: list) -> list:
    kept: list = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept


ENGINES = {
    "deduplicate": deduplicate,
    "first-row": first_row,
    "partial-update": partial_update,
    "aggregation": aggregation,
}
