"""What merging must give, one row at a time in plain Python: the oracle of the merge kernels."""

from __future__ import annotations

from lakeformat.model.work import MergeSpec

RETRACTS = (1, 3)


def merge(rows: list[dict], spec: MergeSpec) -> list[dict] | None:
    """One row per key, or None where the engine cannot merge these rows."""
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
            row = ENGINES[spec.engine](own, spec)
            if row is None:
                return None
            merged.append(row)
    return merged


def deduplicate(rows: list[dict], spec: MergeSpec) -> dict:
    return rows[-1]


def first_row(rows: list[dict], spec: MergeSpec) -> dict | None:
    return None if any(row["_VALUE_KIND"] in RETRACTS for row in rows) else rows[0]


ENGINES = {"deduplicate": deduplicate, "first-row": first_row}
