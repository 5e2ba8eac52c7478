"""Paimon schema documents as requests of its REST protocol: a new table's schema, or the changes between two schemas.

Java's `Schema` and `SchemaChange`, as JSON. Columns are matched by id, as in files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakeformat.errors import UnsupportedFeature

_OWN = ("fields", "partitionKeys", "primaryKeys", "options")
_NULLABLE = " NOT NULL"


def creation(new: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a new table."""
    return {**{key: new[key] for key in _OWN}, "comment": new.get("comment")}


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two schemas are equal apart from who wrote them and when."""
    keys = (*_OWN, "id")
    return all(one[key] == other[key] for key in keys) and (one.get("comment") or "") == (other.get("comment") or "")


def changes(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The changes from `old` to `new`, in the order in which a server applies them. Raises `UnsupportedFeature` for a
    change that the protocol cannot express."""
    before, after = old["options"], new["options"]
    renamed = list(_of_columns(old["fields"], new["fields"], (), where))
    options = [_change("removeOption", key=key) for key in before if key not in after]
    options += [_change("setOption", key=key, value=after[key]) for key in after if before.get(key) != after[key]]
    comments = (old.get("comment") or None, new.get("comment") or None)
    return [
        *renamed,
        *options,
        *([_change("updateComment", comment=comments[1])] if comments[0] != comments[1] else []),
    ]


# --- private ----------------------------------------------------------------------------------------------------------


def _of_columns(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], above: tuple[str, ...], where: str
) -> Iterator[dict[str, Any]]:
    """The changes of columns, or of the fields of the row at `above`: drops, renames, types, new columns, order."""
    before, after = {column["id"]: column for column in old}, {column["id"]: column for column in new}
    order = []
    for id, column in before.items():
        if id in after:
            order.append(column["name"])
        else:
            yield _change("dropColumn", fieldNames=[*above, column["name"]])
    names = {id: column["name"] for id, column in before.items() if id in after}
    for id, name, to in _renamings(names, {id: column["name"] for id, column in after.items()}):
        order[order.index(name)] = to
        names[id] = to
        yield _change("renameColumn", fieldNames=[*above, name], newName=to)
    for id, column in after.items():
        path = [*above, column["name"]]
        if id in before:
            yield from _of_column(before[id], column, path, where)
            continue
        order.append(column["name"])
        comment = column.get("description")
        yield _change("addColumn", fieldNames=path, dataType=column["type"], comment=comment, move=None)
        if column.get("defaultValue") is not None:
            yield _change("updateColumnDefaultValue", fieldNames=path, newDefaultValue=column["defaultValue"])
    for index, target in enumerate([column["name"] for column in new]):
        if order[index] == target:
            continue
        if above:
            raise UnsupportedFeature(
                f"{where}: the order of the parts of {'.'.join(above)}: "
                "Paimon's REST protocol moves columns alone; add parts last"
            )
        order.remove(target)
        order.insert(index, target)
        behind = order[index - 1] if index else None
        move = {"fieldName": target, "referenceFieldName": behind, "type": "AFTER" if index else "FIRST"}
        yield _change("updateColumnPosition", move=move)


def _renamings(names: Mapping[int, str], targets: Mapping[int, str]) -> Iterator[tuple[int, str, str]]:
    """(id, name, new name), ordered so that no two columns ever have the same name."""
    taken, waiting = dict(names), [id for id in names if names[id] != targets[id]]
    while waiting:
        free = [id for id in waiting if targets[id] not in taken.values()]
        id = free[0] if free else waiting[0]  # A cycle of names: one column gets a temporary name.
        to = targets[id] if free else next(n for i in range(len(taken) + 1) if (n := f"_{i}") not in taken.values())
        yield id, taken[id], to
        taken[id] = to
        if free:
            waiting.remove(id)


def _of_column(old: Mapping[str, Any], new: Mapping[str, Any], path: list[str], where: str) -> Iterator[dict[str, Any]]:
    yield from _of_type(old["type"], new["type"], path, where)
    if old.get("description") != new.get("description"):
        yield _change("updateColumnComment", fieldNames=path, newComment=new.get("description"))
    if old.get("defaultValue") != new.get("defaultValue"):
        yield _change("updateColumnDefaultValue", fieldNames=path, newDefaultValue=new.get("defaultValue"))


def _of_type(old: Any, new: Any, path: list[str], where: str) -> Iterator[dict[str, Any]]:
    if old == new:
        return
    if isinstance(old, str) and isinstance(new, str):
        if old.removesuffix(_NULLABLE) != new.removesuffix(_NULLABLE):
            yield _change("updateColumnType", fieldNames=path, newDataType=new, keepNullability=False)
        else:
            nullable = not new.endswith(_NULLABLE)
            yield _change("updateColumnNullability", fieldNames=path, newNullability=nullable)
        return
    kinds = [kind["type"].removesuffix(_NULLABLE) if isinstance(kind, dict) else kind for kind in (old, new)]
    if kinds[0] != kinds[1]:
        raise UnsupportedFeature(f"{where}: {'.'.join(path)} cannot become another kind of type through the server")
    if old["type"] != new["type"]:
        nullable = not new["type"].endswith(_NULLABLE)
        yield _change("updateColumnNullability", fieldNames=path, newNullability=nullable)
    if "fields" in new:
        yield from _of_columns(old["fields"], new["fields"], tuple(path), where)
    for part in ("element", "key", "value"):
        if part in new:
            yield from _of_type(old[part], new[part], [*path, part], where)


def _change(action: str, **fields: Any) -> dict[str, Any]:
    return {"action": action, **fields}
