"""Aggregate functions over rows in merge order: the values of a column in the rows of a key become one.

Facts: Paimon's `mergetree/compact/aggregate/Field*Agg.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from lakeformat.engines.kernels import ranks
from lakeformat.engines.keyed import roaring64, sketches
from lakeformat.errors import CorruptFile, InvalidInput, UnsupportedFeature
from lakeformat.model.dataclass import dataclass
from lakeformat.model.work import Aggregation, NullKeys

# Blanks by Java's Character.isWhitespace.
_BLANK = "^[\\t-\\r\\x1c-\\x1f \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{2028}\\x{2029}\\x{205f}\\x{3000}]*$"


@dataclass(frozen=True, slots=True)
class Events:
    """What each row does to a column. Rows of a key are adjacent, in merge order; a row's index is its place."""

    starts: np.ndarray  # The first place of each key.
    adds: np.ndarray  # For each place: its value is added, as the newest so far.
    older: np.ndarray  # Its value is added, as older than all before it.
    retracts: np.ndarray  # Its value is retracted.

    @property
    def keys(self) -> np.ndarray:
        """The key of each place, from 0."""
        lengths = np.diff(np.append(self.starts, len(self.adds)))
        return np.repeat(np.arange(len(self.starts)), lengths)

    def first(self, mask: np.ndarray) -> np.ndarray:
        """Each key's first place where `mask` is true, or -1."""
        places = np.minimum.reduceat(np.where(mask, np.arange(len(mask)), len(mask)), self.starts)
        return np.where(places == len(mask), -1, places)

    def last(self, mask: np.ndarray) -> np.ndarray:
        """Each key's last place where `mask` is true, or -1."""
        return np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), self.starts)

    def any(self, mask: np.ndarray) -> np.ndarray:
        """For each key, whether `mask` is true anywhere."""
        return np.logical_or.reduceat(mask, self.starts)

    def after(self, mask: np.ndarray, places: np.ndarray) -> np.ndarray:
        """`mask` where it is after the key's given place."""
        return mask & (np.arange(len(mask)) > places[self.keys])


# Per key the place of the row whose value it is (-1: null), or the values themselves.
Result = Any  # np.ndarray or pa.Array


def aggregate(rule: Aggregation, values: pa.ChunkedArray, events: Events) -> Result:
    """One value per key, of `values` by place. Raises `UnsupportedFeature` for values that cannot be retracted."""
    function, can_retract = FUNCTIONS[rule.function]
    if events.retracts.any():
        if rule.ignore_retract:
            events = Events(events.starts, events.adds, events.older, np.zeros_like(events.retracts))
        elif not can_retract:
            raise UnsupportedFeature(
                f"column {rule.column!r}: aggregate function {rule.function!r} cannot take rows back (-U, -D); set "
                f"'fields.{rule.column}.ignore-retract' to 'true' to leave them out"
            )
    return function(values, events, rule)


def last_non_null(valid: np.ndarray, events: Events) -> np.ndarray:
    """The newest of the places where `valid`; a retraction of a valid value leaves nothing until an older one is
    added."""
    decisive = events.last((events.adds | events.retracts) & valid)
    is_add = (decisive >= 0) & events.adds[decisive]
    return np.where(is_add, decisive, events.first(events.after(events.older & valid, decisive)))


def last(events: Events) -> np.ndarray:
    """The newest of all places, null or not; a retraction leaves nothing."""
    decisive = events.last(events.adds | events.retracts)
    return np.where((decisive >= 0) & events.adds[decisive], decisive, -1)


# --- private: values that are one of those given ----------------------------------------------------------------------


def _last_non_null(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    return last_non_null(_valid(values), events)


def _last(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    return last(events)


def _first(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    begun = events.first(events.adds | events.older)
    begun_by_add = (begun >= 0) & events.adds[begun]
    older = events.last(events.after(events.older, begun))
    return np.where(older >= 0, older, np.where(begun_by_add, begun, -1))


def _first_non_null(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    valid = _valid(values)
    lone = events.first(events.older & valid)  # An older row alone decides nothing, only together with another one.
    far = np.int64(len(valid))
    further = events.first(events.after(events.older, np.where(lone < 0, far, lone)))
    added = events.first(events.adds & valid)
    begun = np.minimum(np.where(added < 0, far, added), np.where(further < 0, far, further))
    older = events.last(events.after(events.older, begun))
    settled = np.where(begun == added, added, lone)
    return np.where(begun == far, lone, np.where(older >= 0, older, settled))


def _greatest(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    return _extreme(ranks.ordinals(values), values, events)


def _least(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    return _extreme(~ranks.ordinals(values), values, events)


def _extreme(ordinals: np.ndarray, values: pa.ChunkedArray, events: Events) -> np.ndarray:
    counts = (events.adds | events.older) & _valid(values)
    ranked = np.where(counts, ordinals, np.iinfo(np.int64).min)
    return events.first(counts & (ranked == np.maximum.reduceat(ranked, events.starts)[events.keys]))


# --- private: numbers -------------------------------------------------------------------------------------------------


def _sum(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """Integers wrap; a decimal that gets too large becomes null, and the next one starts a new sum."""
    counts = (events.adds | events.older | events.retracts) & _valid(values)
    has_value = events.any(counts)
    kind = values.type
    if pa.types.is_decimal(kind):
        return _decimal_sum(values, events, counts)
    numbers = _numpy(values)
    signed = np.where(events.retracts, -numbers, numbers)[counts]
    result = np.full(len(events.starts), -0.0 if pa.types.is_floating(kind) else 0, numbers.dtype)
    np.add.at(result, events.keys[counts], signed)  # In order, since floating point addition is not associative.
    return pa.array(result, kind, mask=~has_value)


def _product(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    counts = (events.adds | events.older | events.retracts) & _valid(values)
    kind = values.type
    if pa.types.is_decimal(kind):
        if events.retracts[counts].any():
            raise UnsupportedFeature(
                f"column {rule.column!r}: a product of decimals cannot take rows back (-U, -D) exactly; set "
                f"'fields.{rule.column}.ignore-retract' to 'true' to leave them out"
            )
        return _decimals(values, events, counts, _times)
    numbers, result = _numpy(values), np.ones(len(events.starts), _numpy(values).dtype)
    keys = events.keys
    if not events.retracts[counts].any():
        np.multiply.at(result, keys[counts], numbers[counts])
        return pa.array(result, kind, mask=~events.any(counts))
    begun = np.zeros(len(result), bool)
    for places in _rounds(events, counts):
        key, divides = keys[places], events.retracts[places] & begun[keys[places]]
        if np.any(divides & (numbers[places] == 0)) and not pa.types.is_floating(kind):
            raise InvalidInput(f"column {rule.column!r}: a factor of zero cannot be taken back from a product")
        with np.errstate(all="ignore"):
            quotient = _divided(result[key], np.where(divides, numbers[places], 1))
            result[key] = np.where(divides, quotient, result[key] * numbers[places])
        begun[key] = True
    return pa.array(result, kind, mask=~begun)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As Java divides: whole numbers towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _decimal_sum(values: pa.ChunkedArray, events: Events, counts: np.ndarray) -> pa.Array:
    kind, keys = values.type, events.keys[counts]
    wide = pa.decimal256(76, kind.scale)
    numbers = values.filter(pa.array(counts)).cast(wide)
    signed = pc.if_else(pa.array(events.retracts[counts]), pc.negate(numbers), numbers)
    totals = (
        pa.table({"key": keys, "signed": signed, "size": pc.abs(numbers)})
        .group_by("key", use_threads=False)
        .aggregate([("signed", "sum"), ("size", "sum")])
    )
    if pc.any(pc.greater_equal(totals["size_sum"], _bound(kind, wide))).as_py():
        return _decimals(values, events, counts, pc.add)
    places = np.full(len(events.starts), -1, np.int64)
    places[totals["key"].to_numpy()] = np.arange(len(totals))
    return totals["signed_sum"].combine_chunks().cast(kind).take(pa.array(places, mask=places < 0))


def _decimals(values: pa.ChunkedArray, events: Events, counts: np.ndarray, step: Callable[..., Any]) -> pa.Array:
    """Decimals added one after the other, for all keys at once; a result that does not fit is null."""
    kind, keys = values.type, events.keys
    wide, most = pa.decimal256(kind.precision, kind.scale), pa.decimal256(76, kind.scale)
    bound = _bound(kind, most)
    result = pa.nulls(len(events.starts), wide)
    for places in _rounds(events, counts):
        key = pa.array(keys[places])
        new = values.take(pa.array(places)).combine_chunks().cast(wide)
        if events.retracts[places].any():
            new = pc.if_else(pa.array(events.retracts[places]), pc.negate(new), new)
        old = result.take(key)
        combined = step(old, new).cast(most)
        combined = pc.if_else(pc.less(pc.abs(combined), bound), combined, pa.scalar(None, most)).cast(wide)
        combined = pc.if_else(old.is_valid(), combined, new)
        mask = np.zeros(len(result), bool)
        mask[keys[places]] = True
        result = pc.replace_with_mask(result, pa.array(mask), combined)
    return result.cast(kind)


def _times(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.round(pc.multiply(a, b), ndigits=a.type.scale, round_mode="half_towards_infinity")


def _bound(kind: pa.DataType, wide: pa.DataType) -> pa.Scalar:
    """The least number that has too many digits."""
    return pa.scalar(10 ** (kind.precision - kind.scale), wide)


def _rounds(events: Events, counts: np.ndarray) -> list[np.ndarray]:
    """Places where `counts`: the first of each key, the second of each key, ..."""
    places = np.flatnonzero(counts)
    keys = events.keys[places]
    nth = np.arange(len(places)) - np.searchsorted(keys, keys)
    order = np.argsort(nth, kind="stable")
    return np.split(places[order], np.cumsum(np.bincount(nth))[:-1]) if len(places) else []


# --- private: text, lists, maps ---------------------------------------------------------------------------------------


def _listagg(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """Texts that are not blank, concatenated; `distinct` leaves out duplicate parts."""
    counts = (events.adds | events.older) & _valid(values)
    counts[counts] = ~np.asarray(pc.match_substring_regex(values.filter(pa.array(counts)), _BLANK))
    places, keys = _in_final_order(events, counts)
    texts = values.take(pa.array(places)).combine_chunks()
    if rule.distinct:
        texts, keys = _without_repeats(texts, keys, rule.delimiter)
    lists = _lists(texts, keys, len(events.starts))
    joined = pc.binary_join(lists, rule.delimiter).cast(values.type)
    older = events.last(events.older)  # What stands there where all is blank.
    blank = values.take(pa.array(older, mask=older < 0)).combine_chunks()
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), blank, joined)


def _without_repeats(texts: pa.Array, keys: np.ndarray, delimiter: str) -> tuple[pa.Array, np.ndarray]:
    """The first text of each key as it is, and the parts of the others that are not blank and new."""
    is_head = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.zeros(0, bool)
    split = pc.split_pattern(texts, delimiter)
    parents = np.asarray(pc.list_parent_indices(split))
    parts = pc.list_flatten(split)
    named = ranks.ranks([pa.chunked_array([keys[parents]]), pa.chunked_array([parts])])
    _, firsts = np.unique(named, return_index=True)
    new = np.zeros(len(parts), bool)
    new[firsts] = True
    kept = np.flatnonzero(new & ~is_head[parents] & ~np.asarray(pc.match_substring_regex(parts, _BLANK)))
    heads = np.flatnonzero(is_head)
    all_texts = pa.concat_arrays([texts.take(pa.array(heads)), parts.take(pa.array(kept))])
    all_keys = np.concatenate((keys[heads], keys[parents[kept]]))
    order = np.argsort(all_keys, kind="stable")
    return all_texts.take(pa.array(order)), all_keys[order]


def _collect(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """All elements in one list; each retraction removes the first equal element."""
    counts = (events.adds | events.older | events.retracts) & _valid(values)
    adds = (events.adds | events.older) & counts
    elements = _elements(values, events, counts)
    if len(elements.keys) and (rule.distinct or events.retracts[counts].any()):
        order, starts = _alike(elements.keys, _codes(elements.values, rule))
        retracts = events.retracts[elements.places[order]]
        alike = Events(starts, ~retracts, np.zeros_like(retracts), retracts)
        if rule.distinct:
            kept = alike.first(alike.after(alike.adds, alike.last(retracts)))
            kept = kept[kept >= 0]
        else:
            kept = np.flatnonzero(alike.adds & (_from_last(alike) <= _left(alike)[alike.keys]))
        elements = elements.take(np.sort(order[kept]))
    return _nulled(_lists(elements.values, elements.keys, len(events.starts), values.type), ~events.any(adds))


def _left(alike: Events) -> np.ndarray:
    """The number of each kind that is left, if nothing can be retracted that does not exist."""
    steps = np.where(alike.retracts, -1, 1)
    heights = np.cumsum(steps)
    heights -= (heights[alike.starts] - steps[alike.starts])[alike.keys]
    lowest = np.minimum(np.minimum.reduceat(heights, alike.starts), 0)
    ends = np.append(alike.starts[1:], len(steps)) - 1
    return heights[ends] - lowest


def _from_last(alike: Events) -> np.ndarray:
    """For each addition, its index among those of its kind, counted from the last one, from 1."""
    counted = np.cumsum(alike.adds)
    ends = np.append(alike.starts[1:], len(counted)) - 1
    return counted[ends][alike.keys] - counted + 1


def _merge_map(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """All entries in one map, the newest of each map key; retracted keys are removed."""
    counts = (events.adds | events.older | events.retracts) & _valid(values)
    elements = _elements(values, events, counts)
    elements = elements.take(_newest(elements, events, _codes(pc.struct_field(elements.values, 0), rule)))
    maps = _maps(elements, len(events.starts), values.type)
    return _nulled(maps, ~events.any((events.adds | events.older) & counts))


def _merge_map_by_time(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """As `_merge_map`, but for each map key the entry whose row has the greatest time; of equal ones the first.

    Rows without a time change nothing, and a null instead of a row removes the entry; both stay in the first map. One
    table row after the other, for all keys at once: an older row comes before the whole map.
    """
    assert rule.time is not None, rule
    counts = (events.adds | events.older) & _valid(values)
    elements = _elements(values, events, counts)
    inside = pc.struct_field(elements.values, 1)
    entries = _Entries(
        elements.keys,
        _codes(pc.struct_field(elements.values, 0), rule),
        np.asarray(inside.is_valid()),
        _times_of(pc.struct_field(inside, rule.time)),
    )
    kept = np.zeros(0, np.int64)
    done = [kept]
    for i, places in enumerate(_rounds(events, counts)):
        goes_on = np.isin(elements.keys[kept], events.keys[places])
        done.append(kept[~goes_on])
        kept, incoming = kept[goes_on], _within(elements.places, places)
        turned = np.zeros(len(events.starts), bool)
        turned[events.keys[places[events.older[places]]]] = True
        back, ahead = turned[elements.keys[kept]], turned[elements.keys[incoming]] | (i == 0)
        kept = entries.merged(np.append(kept[~back], incoming[ahead]), np.append(kept[back], incoming[~ahead]))
    chosen = np.concatenate([*done, kept])
    elements = elements.take(chosen[np.lexsort((chosen, elements.keys[chosen]))])
    return _nulled(_maps(elements, len(events.starts), values.type), ~events.any(counts))


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of maps whose values are rows with a time."""

    keys: np.ndarray
    codes: np.ndarray  # Of the map keys.
    has_row: np.ndarray  # Whether there is a row.
    times: np.ndarray  # Of the row, by rank; -1 for none.

    def merged(self, base: np.ndarray, more: np.ndarray) -> np.ndarray:
        """The entries of the maps `base` with the entries `more` applied in order."""
        entries = np.append(base, more)
        if len(entries) == 0:
            return entries
        order, starts = _alike(self.keys[entries], self.codes[entries])
        entries, is_base = entries[order], order < len(base)
        nothing = np.zeros(len(order), bool)
        alike = Events(starts, ~nothing, nothing, nothing)
        first = alike.last(is_base)  # Of one map the last.
        removed = alike.last(~is_base & ~self.has_row[entries])
        counts = (self.times[entries] >= 0) & (~is_base | (np.arange(len(order)) == first[alike.keys]))
        counts = alike.after(counts, removed)
        times = np.where(counts, self.times[entries], -1)
        newest = alike.first(counts & (times == np.maximum.reduceat(times, starts)[alike.keys]))
        chosen = np.where(newest >= 0, newest, np.where(removed < 0, first, -1))
        return entries[chosen[chosen >= 0]]


def _times_of(texts: pa.Array) -> np.ndarray:
    """The rank of each, by UTF-16 as Java compares; -1 for null."""
    valid = np.asarray(texts.is_valid())
    if not valid.any():
        return np.full(len(texts), -1)
    # UTF-8 sorts as UTF-16 does, but that characters beyond 16 bits come before U+E000.
    data = texts.cast(pa.binary())
    for lead, after in ((b"\xee", b"\xf5"), (b"\xef", b"\xf6")):
        data = pc.replace_substring(data, lead, after)
    return np.where(valid, ranks.ranks([pa.chunked_array([data])]), -1)


def _nested_update(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """All rows in one list; with a nested key one of each. Retracted rows are removed, together with all equal ones."""
    counts = (events.adds | events.older | events.retracts) & _valid(values)
    elements = _nested(values, events, counts, rule)
    added = elements.keys[~events.retracts[elements.places]]
    if rule.limit is not None and np.any(np.bincount(added) > rule.limit):
        elements = elements.take(_limited(elements, _valid(values), events, rule))
    elif rule.nested_key:
        elements = elements.take(_of_nested_keys(elements, events, rule))
    else:
        if len(elements.keys) and events.retracts[counts].any():
            order, starts = _alike(elements.keys, _codes(elements.values, rule))
            retracts = events.retracts[elements.places[order]]
            alike = Events(starts, ~retracts, np.zeros_like(retracts), retracts)
            kept = alike.after(alike.adds, alike.last(retracts))
            elements = elements.take(np.sort(order[kept]))
        elements = elements.take(_final_order(elements, events))
    return _nulled(
        _lists(elements.values, elements.keys, len(events.starts), values.type),
        ~events.any((events.adds | events.older) & counts),
    )


def _nested_partial_update(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """One row per nested key: for each of its columns the newest value that is not null."""
    counts = (events.adds | events.older) & _valid(values)
    elements = _nested(values, events, counts, rule)
    elements = elements.take(_final_order(elements, events))
    order, starts = _alike(elements.keys, _nested_codes(elements.values, rule))
    rows, chosen = elements.take(order), order[:0]
    if len(order):
        all_add = np.ones(len(order), bool)
        alike = Events(starts, all_add, ~all_add, ~all_add)
        columns = []
        for column in rows.values.flatten():
            newest = alike.last(np.asarray(column.is_valid()))
            columns.append(column.take(pa.array(newest, mask=newest < 0)))
        chosen = np.argsort(order[starts], kind="stable")
        made = pa.StructArray.from_arrays(columns, fields=list(values.type.value_type))
        rows = _Elements(made, rows.keys[starts], rows.places[starts])
    rows = rows.take(chosen)
    return _nulled(_lists(rows.values, rows.keys, len(events.starts), values.type), ~events.any(counts))


def _nested(values: pa.ChunkedArray, events: Events, counts: np.ndarray, rule: Aggregation) -> _Elements:
    """The nested rows, without nulls and without rows whose nested key has a null that is to be left out."""
    elements = _elements(values, events, counts)
    usable = np.asarray(elements.values.is_valid())
    if rule.nested_key and rule.null_keys is not NullKeys.MERGE:
        parts = [np.asarray(pc.struct_field(elements.values, name).is_valid()) for name in rule.nested_key]
        whole = np.logical_and.reduce(parts)
        if rule.null_keys is NullKeys.ERROR and np.any(usable & ~whole & ~events.retracts[elements.places]):
            raise InvalidInput(
                f"column {rule.column!r}: a row in it has null in its nested key ({', '.join(rule.nested_key)}); set "
                f"'fields.{rule.column}.nested-key-null-strategy' to 'merge' or 'ignore' to let it pass"
            )
        usable &= whole
    return elements.take(np.flatnonzero(usable))


def _nested_codes(values: pa.Array, rule: Aggregation) -> np.ndarray:
    return ranks.ranks([pa.chunked_array([pc.struct_field(values, name)]) for name in rule.nested_key])


def _of_nested_keys(elements: _Elements, events: Events, rule: Aggregation) -> np.ndarray:
    """For each nested key the remaining row with the highest sequence, of these the newest."""
    codes = _nested_codes(elements.values, rule)
    if not rule.nested_sequence:
        return _newest(elements, events, codes)
    if len(codes) == 0:
        return np.zeros(0, np.int64)
    order, starts = _alike(elements.keys, codes)
    retracts = events.retracts[elements.places[order]]
    alike = Events(starts, ~retracts, np.zeros_like(retracts), retracts)
    left = np.sort(order[alike.after(alike.adds, alike.last(retracts))])
    indexes = left[_final_order(elements.take(left), events)]
    return np.sort(indexes[_winners(elements.keys[indexes], codes[indexes], _sequence(elements.values, rule)[indexes])])


def _sequence(values: pa.Array, rule: Aggregation) -> np.ndarray:
    if not rule.nested_sequence:
        return np.zeros(len(values), np.int64)
    return ranks.ranks([pa.chunked_array([pc.struct_field(values, name)]) for name in rule.nested_sequence])


def _winners(keys: np.ndarray, codes: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """For each key and code the place with the highest sequence, of equal ones the last; by key and code."""
    order = np.lexsort((sequence, codes, keys))
    is_last = np.append((np.diff(keys[order]) != 0) | (np.diff(codes[order]) != 0), True)[: len(order)]
    return order[is_last]


def _limited(elements: _Elements, valid: np.ndarray, events: Events, rule: Aggregation) -> np.ndarray:
    """The rows that remain in lists with a limit: one table row after the other, for all keys at once.

    As in Java: an older row comes before the whole list, and elements beyond the limit are then dropped.
    """
    alike = _nested_codes(elements.values, rule) if rule.nested_key else _codes(elements.values, rule)
    codes = alike if rule.nested_key else np.arange(len(alike))
    sequence, keys, limit = _sequence(elements.values, rule), elements.keys, rule.limit or 0
    kept = np.zeros(0, np.int64)
    done = [kept]  # Of keys that have no further row: those of a round are among those of the one before.
    for places in _rounds(events, events.older | ((events.adds | events.retracts) & valid)):
        goes_on = np.isin(keys[kept], events.keys[places])
        done.append(kept[~goes_on])
        kept = kept[goes_on]
        incoming = _within(elements.places, places)
        is_taken = events.retracts[elements.places[incoming]]
        kept = kept[~_among(kept, incoming[is_taken], keys, alike)]
        turned = np.zeros(len(events.starts), bool)
        turned[events.keys[places[events.older[places]]]] = True
        back, ahead = turned[keys[kept]], turned[keys[incoming]]
        base = np.append(kept[~back], incoming[ahead])
        more = np.append(kept[back], incoming[~ahead & ~is_taken])
        kept = _joined(base, more, keys, codes, sequence, limit)
    chosen = np.concatenate([*done, kept])
    return chosen[np.argsort(keys[chosen], kind="stable")]


def _within(places: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Where `places`, which rise, are one of `some`."""
    first, last = np.searchsorted(places, some), np.searchsorted(places, some, side="right")
    lengths = last - first
    return np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _among(some: np.ndarray, others: np.ndarray, keys: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which of `some` elements have the key and code of one of `others`."""
    rows = np.append(some, others)
    pairs = ranks.ranks([pa.chunked_array([keys[rows]]), pa.chunked_array([codes[rows]])])
    return np.isin(pairs[: len(some)], pairs[len(some) :])


def _joined(
    base: np.ndarray, more: np.ndarray, keys: np.ndarray, codes: np.ndarray, sequence: np.ndarray, limit: int
) -> np.ndarray:
    """`base`, and those of `more` that have a code of these or fit below `limit`; one per code, by key."""
    rows = np.append(base, more)
    order = np.argsort(keys[rows], kind="stable")
    rows, is_base = rows[order], (np.arange(len(rows)) < len(base))[order]
    if len(rows) == 0:
        return rows
    own, starts = _alike(keys[rows], codes[rows])
    firsts = np.minimum.reduceat(own, starts)
    winners = _winners(keys[rows], codes[rows], sequence[rows])
    by_place = np.argsort(firsts)
    firsts, winners = firsts[by_place], winners[by_place]
    of = keys[rows][firsts]
    nth = np.arange(len(firsts)) - np.searchsorted(of, of)
    return rows[winners[is_base[firsts] | (nth < limit)]]


def _final_order(elements: _Elements, events: Events) -> np.ndarray:
    """The places of `elements` by key; elements of older rows come before all earlier ones."""
    at = np.where(events.older[elements.places], -elements.places, elements.places)
    return np.lexsort((at, elements.keys))


def _united(values: pa.ChunkedArray, events: Events, rule: Aggregation) -> Result:
    """The union of sketches or roaring bitmaps: 32-bit ones in their portable form, 64-bit ones in Java's."""
    places, keys = _in_final_order(events, (events.adds | events.older) & _valid(values))
    kept = values.take(pa.array(places)).to_pylist()
    edges = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    united: list[bytes | None] = [None] * len(events.starts)
    for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(keys)], strict=False):
        united[int(keys[start])] = kept[start] if stop == start + 1 else _union(kept[start:stop], rule)
    return pa.array(united, values.type)


def _union(bitmaps: list[bytes], rule: Aggregation) -> bytes:
    if rule.function in {"hll_sketch", "theta_sketch"}:
        return sketches.union(rule.function, bitmaps, f"column {rule.column!r}")
    try:
        if rule.function == "rbm64":
            wide = BitMap64.union(*(roaring64.deserialize(bitmap) for bitmap in bitmaps))
            wide.run_optimize()
            return roaring64.serialize(wide)
        united = BitMap.union(*(BitMap.deserialize(bitmap) for bitmap in bitmaps))
        united.run_optimize()
        return bytes(united.serialize())
    except ValueError as error:
        raise CorruptFile(f"column {rule.column!r}: not a roaring bitmap of {rule.function}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of lists, or entries of maps, and the rows they come from."""

    values: Any
    keys: np.ndarray
    places: np.ndarray

    def take(self, chosen: np.ndarray) -> _Elements:
        return _Elements(self.values.take(pa.array(chosen)), self.keys[chosen], self.places[chosen])


def _elements(values: pa.ChunkedArray, events: Events, counts: np.ndarray) -> _Elements:
    places = np.flatnonzero(counts)
    lists = pa.concat_arrays(values.take(pa.array(places)).chunks) if len(places) else pa.array([], values.type)
    if pa.types.is_map(lists.type):
        entry = pa.struct([pa.field("key", lists.type.key_type, False), pa.field("value", lists.type.item_type)])
        offsets = lists.offsets
        first, last = (offsets[0].as_py(), offsets[-1].as_py()) if len(lists) else (0, 0)
        flat = pa.StructArray.from_arrays(
            [lists.keys.slice(first, last - first), lists.items.slice(first, last - first)], fields=list(entry)
        )
        lengths = np.diff(np.asarray(offsets))
    else:
        flat, lengths = pc.list_flatten(lists), np.asarray(pc.list_value_length(lists))
    of = np.repeat(places, lengths)
    return _Elements(flat, events.keys[of], of)


def _alike(keys: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elements with the same key and code, adjacent and in order: (order, starts)."""
    order = np.lexsort((codes, keys))
    new = (keys[order][1:] != keys[order][:-1]) | (codes[order][1:] != codes[order][:-1])
    return order, np.concatenate(([0], np.flatnonzero(new) + 1))


def _newest(elements: _Elements, events: Events, codes: np.ndarray) -> np.ndarray:
    """For each key and code the newest element, if it remains at the end; in the order of the elements."""
    if len(codes) == 0:
        return np.zeros(0, np.int64)
    order, _ = _alike(elements.keys, codes)
    identity = np.stack((elements.keys[order], codes[order], elements.places[order]))
    order = order[np.append(np.any(identity[:, 1:] != identity[:, :-1], axis=0), True)]  # Of a row's own, the last.
    chosen = elements.take(order)
    _, starts = _alike(chosen.keys, codes[order])
    places = chosen.places
    alike = Events(starts, events.adds[places], events.older[places], events.retracts[places])
    kept = last_non_null(np.ones(len(order), bool), alike)
    return np.sort(order[kept[kept >= 0]])


def _codes(values: pa.Array, rule: Aggregation) -> np.ndarray:
    """Numbers that are equal where values are."""
    return ranks.ranks([pa.chunked_array([scalar]) for scalar in _scalars(values, rule)])


def _scalars(values: Any, rule: Aggregation) -> list[pa.Array]:
    kind = values.type
    if pa.types.is_struct(kind):
        return [values.is_valid(), *(part for child in values.flatten() for part in _scalars(child, rule))]
    if pa.types.is_nested(kind):
        raise UnsupportedFeature(
            f"column {rule.column!r}: aggregate function {rule.function!r} would have to compare values of type {kind}"
        )
    return [values]


def _in_final_order(events: Events, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places, keys) where `counts`, by key, older rows before all that came before them."""
    places = np.flatnonzero(counts)
    keys = events.keys[places]
    if events.older[places].any():
        order = np.lexsort((np.where(events.older[places], -places, places), keys))
        places = places[order]
    return places, keys


def _lists(values: pa.Array, keys: np.ndarray, count: int, kind: pa.DataType | None = None) -> pa.ListArray:
    """One list per key; `keys`, one per value, rise."""
    offsets = np.searchsorted(keys, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _maps(entries: _Elements, count: int, kind: pa.DataType) -> pa.MapArray:
    """One map per key; the keys of `entries` rise."""
    lists = _lists(entries.values, entries.keys, count)
    entry = lists.values
    return pa.MapArray.from_arrays(lists.offsets, pc.struct_field(entry, 0), pc.struct_field(entry, 1), type=kind)


def _nulled(values: pa.Array, where: np.ndarray) -> pa.Array:
    if not where.any():
        return values
    return values.take(pa.array(np.arange(len(values)), mask=where))


def _valid(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.is_valid()) if values.null_count else np.ones(len(values), bool)


def _numpy(values: pa.ChunkedArray) -> np.ndarray:
    return (values.fill_null(0) if values.null_count else values).to_numpy()


# Function -> (how, whether rows can be taken back).
FUNCTIONS: dict[str, tuple[Callable[[pa.ChunkedArray, Events, Aggregation], Result], bool]] = {
    "sum": (_sum, True),
    "product": (_product, True),
    "max": (_greatest, False),
    "min": (_least, False),
    "last_value": (_last, True),
    "last_non_null_value": (_last_non_null, True),
    "first_value": (_first, False),
    "first_non_null_value": (_first_non_null, False),
    "listagg": (_listagg, False),
    "bool_and": (_least, False),
    "bool_or": (_greatest, False),
    "collect": (_collect, True),
    "merge_map": (_merge_map, True),
    "merge_map_with_keytime": (_merge_map_by_time, False),
    "nested_update": (_nested_update, True),
    "nested_partial_update": (_nested_partial_update, False),
    "rbm32": (_united, False),
    "rbm64": (_united, False),
    "hll_sketch": (_united, False),
    "theta_sketch": (_united, False),
}
