"""Writes `understand-files.md`: a Paimon table with a primary key, and what each operation does to its files.

    python docs/understand_files.py

Every tree, snapshot and manifest entry on the page is read from the table that the script makes. Names that a writer draws
by lot are numbered in the order in which they come, so that the page is the same each time.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from lakeformat import Lake
from lakeformat.streaming import Prepared
from lakeformat.table import Table

PAGE = Path(__file__).with_name("understand-files.md")
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("dt", pa.string())])
_DRAWN = re.compile(r"(?P<kind>data|manifest-list|manifest)-[0-9a-f]{8}-[0-9a-f-]{27}-\d+")


@dataclass(frozen=True, slots=True)
class Step:
    """A statement, and the table after it."""

    title: str
    statement: str
    tree: tuple[str, ...]
    snapshot: dict[str, object] | None
    entries: tuple[tuple[str, str, str, int], ...]  # (ADD or DELETE, partition, file, level) of its own manifests.
    rows: tuple[tuple[object, ...], ...]
    history: tuple[tuple[int, str, int], ...]  # The snapshots that are there: number, kind, identifier of the commit.


def walk(warehouse: Path) -> list[Step]:
    """The statements one after the other on a new table `default.T`, and what each left."""
    lake, names = Lake(str(warehouse)), Names()
    steps: list[Step] = []

    def step(title: str, statement: str, do: Callable[[], object]) -> None:
        do()
        steps.append(look(lake.table("default.T"), title, statement, names))

    step(
        "Create the table",
        """table = lake.create_table(
    "default.T", schema, partition_by=["dt"], primary_key=["id", "dt"],
    properties={"bucket": "1", "merge-engine": "deduplicate"},
)""",
        lambda: lake.create_table(
            "default.T",
            SCHEMA,
            partition_by=["dt"],
            primary_key=["id", "dt"],
            properties={"bucket": "1", "merge-engine": "deduplicate"},
        ),
    )
    table = lake.table("default.T")
    step("Insert one row", "table.append([row(1)])", lambda: table.append([row(1)]))
    step(
        "Insert nine rows in nine partitions",
        "table.append([row(n) for n in range(2, 11)])",
        lambda: table.append([row(n) for n in range(2, 11)]),
    )
    step("Delete rows", "table.delete(\"dt >= '20230503'\")", lambda: table.delete("dt >= '20230503'"))
    step("Compact", "table.compact(full=True)", lambda: table.compact(full=True))
    options = {"full-compaction.delta-commits": "1", "snapshot.clean-empty-directories": "true"}
    step(
        "Alter the table",
        'table.alter().set_properties(\n    {"full-compaction.delta-commits": "1", "snapshot.clean-empty-directories": "true"}\n).commit()',
        lambda: table.alter().set_properties(options).commit(),
    )
    step("Insert once more", "table.append([row(11)])", lambda: table.append([row(11)]))
    step("Expire snapshots", "table.expire_snapshots(retain_last=1)", lambda: table.expire_snapshots(retain_last=1))
    stream, prepared = table.stream("cdc"), list[Prepared]()
    step(
        "Prepare a checkpoint of a stream",
        'stream = table.stream("cdc")\nprepared = stream.prepare(1, [row(11) | {"a": 0}])',
        lambda: prepared.append(stream.prepare(1, [row(11) | {"a": 0}])),
    )
    step(
        "Commit the checkpoint",
        "stream.commit(prepared)\nstream.settle()",
        lambda: (stream.commit(prepared[0]), stream.settle()),
    )
    step("Commit it again", "stream.commit(prepared)", lambda: stream.commit(prepared[0]))
    return steps


def row(number: int) -> dict[str, object]:
    return {"id": number, "a": 10_000 + number, "b": f"varchar{number:05}", "dt": f"202305{number:02}"}


class Names:
    """Names drawn by lot -> numbered ones, in the order in which they come."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def shown(self, text: str) -> str:
        return _DRAWN.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        if found[0] not in self._known:
            self._counts[found["kind"]] += 1
            self._known[found[0]] = f"{found['kind']}-{self._counts[found['kind']]}"
        return self._known[found[0]]


def look(table: Table, title: str, statement: str, names: Names) -> Step:
    """The table's files, its newest snapshot, and what that snapshot's own manifests say."""
    root = Path(table.uri.removeprefix("file://"))
    document, entries = None, []
    current = table.current_snapshot()
    if current is not None:
        document = json.loads((root / "snapshot" / f"snapshot-{current.id}").read_text())
        for meta in _avro(root / "manifest" / document["deltaManifestList"]):
            for entry in _avro(root / "manifest" / meta["_FILE_NAME"]):
                day = entry["_PARTITION"][-8:].decode()  # The text of eight bytes at the end of a BinaryRow.
                kind = "DELETE" if entry["_KIND"] else "ADD"
                entries.append((kind, day, names.shown(entry["_FILE"]["_FILE_NAME"]), entry["_FILE"]["_LEVEL"]))
        document = {key: _shown(key, value, names) for key, value in document.items()}
    files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    files += [f"{path.relative_to(root)}/" for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())]
    rows = tuple(tuple(each.values()) for each in table.scan().to_arrow().sort_by("id").to_pylist())
    documents = [json.loads(path.read_text()) for path in root.glob("snapshot/snapshot-*")]
    history = tuple(sorted((each["id"], each["commitKind"], each["commitIdentifier"]) for each in documents))
    tree = tuple(sorted(map(names.shown, files), key=_in_order))
    return Step(title, statement, tree, document, tuple(entries), rows, history)


def page(steps: list[Step]) -> str:
    """The steps as Markdown, with what is worth knowing about each."""
    parts = [_HEAD]
    seen: set[str] = set()
    for step in steps:
        parts.append(f"## {step.title}\n\n```\n{step.statement}\n```\n\n{_NOTES[step.title].strip()}\n")
        if step.snapshot and f"{step.snapshot}" not in seen:
            seen.add(f"{step.snapshot}")
            parts.append(
                f"`snapshot-{step.snapshot['id']}`:\n\n```\n{json.dumps(step.snapshot, indent=2, ensure_ascii=False)}\n```\n"
            )
            lines = [f"| {kind} | {day} | {file} | {level} |" for kind, day, file, level in step.entries]
            parts.append(
                "\n".join(
                    [
                        "Entries of its own manifests:",
                        "",
                        "| | dt | file | level |",
                        "| --- | --- | --- | --- |",
                        *lines,
                        "",
                    ]
                )
            )
        parts.append("Files of the table:\n\n```\n" + "\n".join(step.tree) + "\n```\n")
    return "\n".join(parts)


def _avro(path: Path) -> list[dict[str, Any]]:
    """Read by a library that is not ours."""
    with path.open("rb") as file:
        return list(fastavro.reader(file))  # type: ignore[arg-type]


def _in_order(path: str) -> list[object]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def _shown(key: str, value: object, names: Names) -> object:
    if key in ("timeMillis", "commitUser", "uuid", "writerVersion") or key.endswith("Size"):
        return "…"
    if isinstance(value, dict):
        return dict.fromkeys(value, "…")
    return names.shown(value) if isinstance(value, str) else value


_HEAD = """# Files of a Paimon table

What each operation does to the files of a Paimon table with a primary key. For the terms, see [concepts](concepts.md).

`python docs/understand_files.py` generates this page: it runs each statement, then reads the folder, the snapshots and, with fastavro, the manifests. Random names are numbered here, and times, ids
and sizes are left out (`…`).
"""

_NOTES = {
    "Create the table": "A new table is one schema file; there is no snapshot yet. The primary key contains the partition columns, and the table has one fixed bucket. (One bucket was the default of Paimon 0.4; today's default is dynamic buckets.)",
    "Insert one row": """
The commit writes one data file on level 0, one manifest with an ADD entry, and two manifest lists. The base list holds the manifests of the previous snapshot, here none;
the delta list holds those of this commit. `LATEST` and `EARLIEST` are hints for readers. A file `RESTORED`
appears if a rollback has removed snapshots, and `EXPIRING-<uuid>` while snapshots expire.""",
    "Insert nine rows in nine partitions": "Nine data files, and nine ADD entries in one manifest. The base list of this snapshot names the manifest of the first.",
    "Delete rows": """
No file is removed. Each of eight partitions gets a file with a row of kind -D, so the manifest has eight ADD entries. A read merges the two rows of a key, and the newer
one, the deletion, wins. Two rows are left.""",
    "Compact": """
Compaction merges all runs of a bucket into the top level (5).

- Eight partitions hold an insertion and its deletion, of which nothing is left: 16 DELETE entries and no ADD.
- The other two partitions hold one file each, which is upgraded to the top level as it is: 2 DELETE and 2 ADD entries, which name the same two files. No file is written for them. Their keys are read, since some
  writers do not merge the rows of a commit by key; a file with a duplicate key would be rewritten.

A DELETE entry only marks a file. The file stays as long as an older snapshot reads it. Paimon 0.4 has the same 20 entries and counts them as added rows (`deltaRecordCount` 20, `totalRecordCount` 38); today's Paimon counts the
rows of live files.""",
    "Alter the table": "The change writes `schema-1` and nothing else. No snapshot uses it until the next commit.",
    "Insert once more": """
With the new option, each write is followed by a compaction: `snapshot-5` adds the file on level 0, `snapshot-6` upgrades it. Both have `schemaId` 1.""",
    "Expire snapshots": """
Snapshots 1 to 5 expire. Their files are deleted in this order:

1. the 16 data files that a DELETE entry names and no remaining snapshot uses (the three upgraded files are still in use);
2. manifests and manifest lists that only these snapshots use;
3. the snapshot files. `EARLIEST` is set last.

The option `snapshot.clean-empty-directories` also removes the partition folders that became empty; Paimon 0.4 always did.""",
    "Prepare a checkpoint of a stream": """
The stream writes a sorted file to level 0. No manifest and no snapshot names it yet, so no reader sees it. Another process may commit it, or abort it, which removes this file and no other.""",
    "Commit the checkpoint": """
The commit makes two snapshots. `snapshot-7` is the APPEND of the rows, with the stream's name as its user and 1 as its identifier. `snapshot-8` is the COMPACT that the table's option asks for; a thread of the stream makes it, and
`settle` waits for it. The new row replaces the one with its key: two files get DELETE entries, and one is added. A checkpoint without rows makes no snapshot.""",
    "Commit it again": "After a crash, a stream does not know whether its commit landed, and commits again. The identifier is found in the history, and nothing happens.",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(walk(Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
