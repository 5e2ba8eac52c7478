"""The difference of two table metadata documents, as requirements and updates of a REST catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
_MAIN = "main"
# A property instead of the document's own key `lakeformat-operation`: servers keep properties and drop unknown keys.
OPERATION, OPERATION_PROPERTY = "lakeformat-operation", "lakeformat.operation"


def requirements(base: Document, new: Document) -> list[dict[str, Any]]:
    """What must not have changed since `base` for `new` to be valid: ids and every reference."""
    refs, names = _refs(base), {_MAIN, *_refs(base), *_refs(new)}
    return [
        {"type": "assert-table-uuid", "uuid": base["table-uuid"]},
        *(
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": refs.get(name, {}).get("snapshot-id")}
            for name in sorted(names)
        ),
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": base["last-column-id"]},
        {"type": "assert-current-schema-id", "current-schema-id": base["current-schema-id"]},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": base["last-partition-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": base["default-spec-id"]},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": base["default-sort-order-id"]},
    ]


def updates(base: Document, new: Document) -> list[dict[str, Any]]:
    """The updates, ordered so that each is valid when it is applied."""
    changes: list[dict[str, Any]] = []
    if new["format-version"] != base["format-version"]:
        changes.append({"action": "upgrade-format-version", "format-version": new["format-version"]})
    for one, many, id, default, current in (
        ("schema", "schemas", "schema-id", "current-schema-id", "set-current-schema"),
        ("spec", "partition-specs", "spec-id", "default-spec-id", "set-default-spec"),
        ("sort-order", "sort-orders", "order-id", "default-sort-order-id", "set-default-sort-order"),
    ):
        known = {entry[id] for entry in base[many]}
        for entry in new[many]:
            if entry[id] not in known:
                last = {"last-column-id": new["last-column-id"]} if one == "schema" else {}
                changes.append({"action": f"add-{one}", one: entry, **last})
        if new[default] != base[default]:
            changes.append({"action": current, "sort-order-id" if one == "sort-order" else id: new[default]})
    changes += _properties(base, new)
    before, after = _refs(base), _refs(new)
    changes += [{"action": "remove-snapshot-ref", "ref-name": name} for name in before if name not in after]
    old, new_snapshots = _snapshots(base), _snapshots(new)
    for key, action in (("statistics", "remove-statistics"), ("partition-statistics", "remove-partition-statistics")):
        removed = {s["snapshot-id"] for s in base.get(key) or ()} - {s["snapshot-id"] for s in new.get(key) or ()}
        changes += [{"action": action, "snapshot-id": snapshot_id} for snapshot_id in sorted(removed)]
    if gone := [snapshot_id for snapshot_id in old if snapshot_id not in new_snapshots]:
        changes.append({"action": "remove-snapshots", "snapshot-ids": gone})
    for key, action in (("statistics", "set-statistics"), ("partition-statistics", "set-partition-statistics")):
        noted = {s["snapshot-id"]: s for s in base.get(key) or ()}
        fresh = [s for s in new.get(key) or () if s != noted.get(s["snapshot-id"])]
        changes += [{"action": action, "snapshot-id": s["snapshot-id"], key: s} for s in fresh]
    changes += [
        {"action": "add-snapshot", "snapshot": s} for snapshot_id, s in new_snapshots.items() if snapshot_id not in old
    ]
    changes += [
        {"action": "set-snapshot-ref", "ref-name": name, **ref}
        for name, ref in after.items()
        if ref != before.get(name)
    ]
    return changes


def goes_on(base: Document, new: Document) -> bool:
    """Whether a server can turn `base` into `new`: the same table, with equal snapshots and schemas where both have
    them, and newer snapshots only."""
    old_snapshots, new_snapshots = _snapshots(base), _snapshots(new)
    same = all(
        snapshot["manifest-list"] == new_snapshots[id]["manifest-list"]
        for id, snapshot in old_snapshots.items()
        if id in new_snapshots
    )
    columns = {schema["schema-id"]: _columns(schema) for schema in new["schemas"]}
    same = same and all(
        columns.get(schema["schema-id"], _columns(schema)) == _columns(schema) for schema in base["schemas"]
    )
    numbers = [snapshot["sequence-number"] for id, snapshot in new_snapshots.items() if id not in old_snapshots]
    later = min(numbers, default=base["last-sequence-number"] + 1) > base["last-sequence-number"]
    return bool(same and later and base["table-uuid"] == new["table-uuid"])


def _columns(schema: Document) -> list[tuple[int, str]]:
    return [(field["id"], field["name"]) for field in schema["fields"]]


def creation(name: str, new: Document) -> dict[str, Any]:
    """The request that creates a table from its first document; the server chooses the location."""
    schemas = {s["schema-id"]: s for s in new["schemas"]}
    specs = {s["spec-id"]: s for s in new["partition-specs"]}
    orders = {o["order-id"]: o for o in new["sort-orders"]}
    operation = {OPERATION_PROPERTY: new[OPERATION]} if OPERATION in new else {}
    return {
        "name": name,
        "schema": schemas[new["current-schema-id"]],
        "partition-spec": specs[new["default-spec-id"]],
        "write-order": orders[new["default-sort-order-id"]],
        "stage-create": False,
        "properties": {**new["properties"], **operation, "format-version": str(new["format-version"])},
    }


def view_creation(name: str, new: Document) -> dict[str, Any]:
    """The request that creates a view from its first document."""
    (schema,), (version,) = new["schemas"], new["versions"]
    location = {"location": new["location"]} if "location" in new else {}
    return {"name": name, "schema": schema, "view-version": version, "properties": new["properties"], **location}


def view_updates(base: Document, new: Document) -> list[dict[str, Any]]:
    """The updates of a view. The server numbers new versions and schemas: -1 is the one added last."""
    schema_ids = {schema["schema-id"] for schema in base["schemas"]}
    added = [schema for schema in new["schemas"] if schema["schema-id"] not in schema_ids]
    changes: list[dict[str, Any]] = [{"action": "add-schema", "schema": schema} for schema in added]
    version_id = new["current-version-id"]
    if version_id not in {version["version-id"] for version in base["versions"]}:
        version = next(candidate for candidate in new["versions"] if candidate["version-id"] == version_id)
        schema_id = version["schema-id"] if version["schema-id"] in schema_ids else -1
        changes.append({"action": "add-view-version", "view-version": {**version, "schema-id": schema_id}})
        version_id = -1
    if version_id != base["current-version-id"]:
        changes.append({"action": "set-current-view-version", "view-version-id": version_id})
    return [*changes, *_property_updates(base.get("properties") or {}, new.get("properties") or {})]


def holds(returned: Any, base: Document, new: Document) -> bool:
    """Whether the document returned by a server contains the change from `base` to `new`: its snapshot, or else its
    operation."""
    try:
        if added := _snapshots(new).keys() - _snapshots(base).keys():
            return added <= _snapshots(returned).keys()
        return bool(returned["properties"][OPERATION_PROPERTY] == new[OPERATION])
    except (KeyError, TypeError, AttributeError):
        return False


def _properties(base: Document, new: Document) -> list[dict[str, Any]]:
    before, after = dict(base.get("properties") or {}), dict(new.get("properties") or {})
    if _snapshots(base).keys() >= _snapshots(new).keys() and OPERATION in new:
        after[OPERATION_PROPERTY] = new[OPERATION]  # A new snapshot records its operation.
    else:
        before.pop(OPERATION_PROPERTY, None)
    return _property_updates(before, after)


def _property_updates(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    removed = sorted(key for key in before if key not in after)
    changes: list[dict[str, Any]] = [{"action": "set-properties", "updates": changed}] if changed else []
    return [*changes, {"action": "remove-properties", "removals": removed}] if removed else changes


def _refs(document: Document) -> dict[str, Any]:
    """The references by name; old documents have only their current snapshot."""
    refs = dict(document.get("refs") or {})
    current = document.get("current-snapshot-id")
    if current not in (None, -1):
        refs.setdefault(_MAIN, {"snapshot-id": current, "type": "branch"})
    return refs


def _snapshots(document: Document) -> dict[int, Any]:
    return {s["snapshot-id"]: s for s in document.get("snapshots") or ()}
