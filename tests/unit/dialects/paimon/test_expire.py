"""What expiry, the sweep, rollbacks and tags remove, and never remove."""

import copy
import datetime
import json
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from lakeformat import Conflict, InvalidInput, Lake, LakeError, NoSuchFile, NotFound, UnsupportedFeature
from lakeformat.commit import commit
from lakeformat.dialects.paimon import expire, manifest, metadata, plan, scan
from lakeformat.dialects.paimon.dialect import Paimon
from lakeformat.errors import StoreError
from lakeformat.maintenance import expire as maintenance
from lakeformat.maintenance import sweep
from lakeformat.model import evolution
from lakeformat.model.operation import Append, Create, Overwrite, Request, Restore, Rewrite
from lakeformat.model.partition import identity
from lakeformat.model.predicate import in_tuples
from lakeformat.model.schema import Field, Kind, Schema, scalar
from lakeformat.model.snapshot import Retention, Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.memory import MemoryFiles
from lakeformat.table import Table, create
from lakeformat.verbs.append import append
from tests import doors
from tests.draw import ends_and_some
from tests.unit.dialects.paimon.by_day import SCHEMA, ids, rows

dialect = Paimon()

ONE = Retention(1, 1)
LONGER = {"snapshot.num-retained.min": "3", "changelog.num-retained.min": "8", "changelog.num-retained.max": "8"}


def data(home):
    return {str(p.relative_to(home)) for p in home.rglob("*.parquet")}


# --- a table of names in memory ---------------------------------------------------------------------------------------


class Hurt(MemoryFiles):
    """Fails when `left` more files have been removed or written."""

    left = -1

    def _step(self):
        if self.left == 0:
            raise StoreError("pulled the plug")
        self.left -= 1

    def delete(self, paths):
        for path in paths:
            self._step()
            super().delete([path])

    def write(self, path, data):
        self._step()
        super().write(path, data)


class World:
    """A table whose data files are only names, with a model of which are live at each snapshot."""

    number = 0

    def __init__(self, **properties):
        World.number += 1
        self.store = Hurt(f"memory://expire-{World.number}", now_ms=lambda: 1)
        self.clock, self.live, self.at = 0, {}, {}
        schema = Schema(
            (Field(0, "id", scalar(Kind.BIGINT)), Field(1, "dt", scalar(Kind.STRING))),
            identity("dt"),
            properties={"manifest.merge-min-count": "3", **properties},
        )
        self.commit(Create(request=Request(id="create"), schema=schema))

    def commit(self, operation):
        self.clock += 1000
        return commit(
            self.store,
            dialect.head(self.store),
            dialect,
            operation,
            stamp=lambda n: Stamp(self.clock, f"{self.clock}", n),
        )

    def file(self, partition):
        World.number += 1
        path = f"dt={partition}/bucket-0/data-00000000-0000-0000-0000-{World.number:012}-0.parquet"
        self.store.write(path, b"rows")
        return WrittenFile(path, (partition,), 1, 4)

    def did(self, made):
        self.at[made.id] = set(self.live)
        return made.id

    def request(self):
        return Request(id=f"op-{self.clock}")

    def append(self, *partitions):
        added = tuple(self.file(p) for p in partitions)
        made = self.commit(Append(request=self.request(), added=added))
        self.live |= {f.path: f.partition[0] for f in added}
        return self.did(made)

    def overwrite(self, partition, count=1):
        added = tuple(self.file(partition) for _ in range(count))
        made = self.commit(Overwrite(request=self.request(), added=added, scope=in_tuples(["dt"], [(partition,)])))
        self.live = {p: v for p, v in self.live.items() if v != partition} | {f.path: partition for f in added}
        return self.did(made)

    def compact(self, partition):
        removed = tuple(p for p, v in self.live.items() if v == partition)
        added = (self.file(partition),)
        made = self.commit(Rewrite(request=self.request(), removed=removed, added=added))
        self.live = {p: v for p, v in self.live.items() if v != partition} | {added[0].path: partition}
        return self.did(made)

    def restore(self, id, tidy=True):
        made = self.commit(Restore(request=self.request(), snapshot_id=id))
        self.live = {p: p.split("/")[0][3:] for p in self.at[id]}
        self.did(made)
        if tidy:
            self.tidy(made.id)
        return made.id

    def tidy(self, id):
        maintenance.remove(self.store, expire.Expiring(self.store, metadata.NOTHING).of_restore(id))

    def tag(self, name, id):
        path, content = dialect.load_snapshot(self.store, id).tag(name, self.clock, None)
        self.store.create(path, content)

    def expire(self, retention=ONE):
        return maintenance.expire(self.store, dialect, retention, self.clock)

    def copy(self):
        World.number += 1  # Decoded manifests are remembered by where they lie.
        other = copy.copy(self)
        other.store, other.live, other.at = Hurt(f"memory://copy-{World.number}", lambda: 1), {**self.live}, {**self.at}
        for f in self.store.list(""):
            other.store.write(f.path, self.store.read(f.path))
        return other

    def check(self, unreachable_gone=False):
        """Every snapshot and tag that is there reads as the model says, and lacks no file."""
        reachable = set()
        bases = [dialect.load_snapshot(self.store, i) for i in metadata.snapshot_ids(self.store)]
        bases += [dialect.at_tag(self.store, name) for name in metadata.tags(self.store)]
        for base in bases:
            found = set(base.files().paths.to_pylist())
            assert found == self.at[base.version], base.version
            reachable |= found
        missing = {p for p in reachable if not self.store.exists(p)}
        assert missing == set()
        if unreachable_gone:
            assert self.data() == reachable
        return reachable

    def data(self):
        return {f.path for f in self.store.list("") if "bucket-0" in f.path}


def story(world):
    """A bit of everything."""
    for partition in ("a", "b", "a", "c"):
        world.append(partition)
    world.overwrite("a", 2)
    world.compact("a")
    world.append("a", "b")
    world.compact("b")
    world.overwrite("b")
    world.append("c")
    world.compact("c")
    world.append("a")


# --- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.drawn(5)
@pytest.mark.parametrize("keep", range(1, 13))
def test_whatever_is_kept_reads_and_whatever_nobody_reaches_is_gone(keep):
    world = World()
    story(world)
    found = world.expire(Retention(keep, keep))
    assert found.snapshots == tuple(range(1, 13 - keep))
    world.check(unreachable_gone=True)
    assert world.store.read("snapshot/EARLIEST") == str(13 - keep).encode()
    assert metadata.snapshot_ids(world.store) == list(range(13 - keep, 13))
    # No manifest, list or anything is left over either.
    assert dialect.load(world.store, 12).expiring.orphans(2) == []


def release_tag(world, name):
    view = dialect.load(world.store, 12)
    maintenance.release(world.store, dialect, view, view.expiring.of_tag(name))
    return view


@pytest.mark.parametrize("tagged", range(1, 12))
def test_tags_keep_their_files_until_they_go(tagged):
    world = World()
    story(world)
    world.tag("t", tagged)
    assert len(world.expire().snapshots) == 11
    world.check(unreachable_gone=True)
    release_tag(world, "t")
    assert metadata.tags(world.store) == {}
    world.check(unreachable_gone=True)
    assert dialect.load(world.store, 12).expiring.orphans(2) == []


def test_two_tags_share_files():
    world = World()
    story(world)
    world.tag("one", 3)
    world.tag("two", 4)
    world.expire()
    release_tag(world, "two")
    world.check(unreachable_gone=True)
    release_tag(world, "one")
    world.check(unreachable_gone=True)


@pytest.mark.slow
def steps_of(whole, verb):
    """How many files a verb removes and writes in all."""
    world = whole.copy()
    world.store.left = -1
    verb(world)
    return -1 - world.store.left


def test_an_interrupted_expiry_loses_nothing_and_the_next_finishes():
    """The plug is pulled before every single file in turn."""
    whole = World()
    story(whole)
    whole.tag("t", 2)
    steps = steps_of(whole, lambda world: world.expire(Retention(3, 3)))
    assert steps > 30
    for n in ends_and_some(range(steps), 8, "expiry"):
        world = whole.copy()
        world.store.left = n
        with suppress(StoreError):  # What fails at hints, which come last, is not raised.
            world.expire(Retention(3, 3))
        world.store.left = -1
        for id in (10, 11, 12):
            assert set(dialect.load_snapshot(world.store, id).files().paths.to_pylist()) == world.at[id]
            assert all(world.store.exists(p) for p in world.at[id] | world.at[2])
        world.expire(Retention(3, 3))
        assert metadata.snapshot_ids(world.store) == [10, 11, 12]
        world.check(unreachable_gone=True)
        assert dialect.load(world.store, 12).expiring.orphans(2) == []


def test_an_unreadable_manifest_of_what_stays_stops_everything():
    world = World()
    story(world)
    lists = manifest.read_list(world.store, dialect.load(world.store, 12).state.document["deltaManifestList"])
    path = f"manifest/{lists['_FILE_NAME'][0].as_py()}"
    for content in (b"garbage", None):
        held = world.store.read(path)
        world.store.delete([path])
        if content is not None:
            world.store.write(path, content)
        other = MemoryFiles(f"{world.store.root}-{content}")
        for f in world.store.list(""):
            other.write(f.path, world.store.read(f.path))
        before = {f.path for f in other.list("")}
        with pytest.raises(LakeError):
            maintenance.expire(other, dialect, Retention(1, 1), world.clock)
        with pytest.raises(LakeError):
            sweep.sweep(other, dialect, world.clock * 2**40, dry_run=False)
        assert {f.path for f in other.list("")} == before
        world.store.write(path, held)


def refused(world, tag):
    """Whether expiry, the sweep and the removal of a tag all stop before they remove anything."""
    before = {f.path for f in world.store.list("")}
    for verb in (
        world.expire,
        lambda: sweep.sweep(world.store, dialect, world.clock * 2**40, dry_run=False),
        lambda: release_tag(world, tag),
    ):
        with pytest.raises(LakeError):
            verb()
    return {f.path for f in world.store.list("")} == before


@pytest.mark.parametrize("key", ["baseManifestList", "deltaManifestList"])
@pytest.mark.parametrize("by", ["tag", "branch", "tag of a branch"])
def test_a_missing_list_of_what_stays_stops_everything(key, by):
    world = World()
    story(world)
    world.tag("gone", 5)
    document = world.store.read("snapshot/snapshot-3")
    if by == "tag":
        world.tag("kept", 3)
    else:
        world.store.write("branch/branch-b/schema/schema-0", world.store.read("schema/schema-0"))
        world.store.write(f"branch/branch-b/{'snapshot/snapshot-3' if by == 'branch' else 'tag/tag-kept'}", document)
    world.expire(Retention(3, 3))
    world.store.delete([f"manifest/{json.loads(document)[key]}"])
    assert refused(world.copy(), "gone")


def test_a_missing_index_manifest_of_what_stays_stops_everything(tmp_path, home):
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, properties={"deletion-vectors.enabled": "true"})
    table.append(rows(1, 2))
    table.delete("id = 1")
    table.create_tag("kept")
    table.create_tag("gone", 1)
    table.overwrite(rows(3))
    table.expire_snapshots(retain_last=2)
    (home / "manifest" / metadata.read_snapshots(doors.store(table), [2])[0]["indexManifest"]).unlink()
    there = set(home.rglob("*"))
    fresh = Lake(str(tmp_path)).table("d.t")
    for verb in (lambda: fresh.expire_snapshots(retain_last=1), lambda: fresh.delete_tag("gone")):
        with pytest.raises(LakeError):
            verb()
    assert set(home.rglob("*")) == there


@pytest.mark.parametrize("lists_too", [True, False])
def test_a_missing_manifest_of_what_goes_is_no_hindrance(lists_too):
    world = World()
    story(world)
    document = dialect.load_snapshot(world.store, 3).state.document
    lists = manifest.read_list(world.store, document["deltaManifestList"])
    gone = {f"manifest/{n}" for n in lists["_FILE_NAME"].to_pylist()}
    if lists_too:
        gone.add(f"manifest/{document['deltaManifestList']}")
    newest = manifest.read_metas(world.store, dialect.load(world.store, 12).state.document)
    later = {f"manifest/{n}" for n in newest["_FILE_NAME"].to_pylist()}
    assert gone - later
    world.store.delete(gone - later)
    world = world.copy()
    world.expire()
    assert metadata.snapshot_ids(world.store) == [12]
    assert all(world.store.exists(p) for p in world.at[12])


@pytest.mark.parametrize("list_too", [True, False])
def test_missing_manifests_of_changelog_files_are_no_hindrance(tmp_path, home, list_too):
    schema = pa.schema([pa.field("id", pa.int64(), False)])
    properties = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", schema, primary_key=["id"], properties=properties)
    for i in range(3):
        table.upsert(pa.table({"id": [i]}, schema=schema))
    name = metadata.read_snapshots(doors.store(table), [1])[0]["changelogManifestList"]
    for value in manifest.read_list(doors.store(table), name)["_FILE_NAME"].to_pylist():
        (home / "manifest" / value).unlink()
    if list_too:
        (home / "manifest" / name).unlink()
    Lake(str(tmp_path)).table("d.t").expire_snapshots(retain_last=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [3]


def test_a_missing_list_of_a_changelog_that_goes_is_no_hindrance():
    world = World(**LONGER)
    story(world)
    world.expire(Retention(3, 3))
    assert metadata.changelog_ids(world.store) == [5, 6, 7, 8, 9]
    world.store.delete([f"manifest/{metadata.read_changelogs(world.store, [5])[0]['deltaManifestList']}"])
    world = world.copy()
    base = dialect.load(world.store, 12).state
    fewer = {**LONGER, "changelog.num-retained.min": "5", "changelog.num-retained.max": "5"}
    asked = replace(base, schema=replace(base.schema, properties=fewer))
    maintenance.remove(world.store, expire.Expiring(world.store, asked).snapshots(Retention(3, 3), world.clock))
    assert metadata.changelog_ids(world.store) == [8, 9]
    assert metadata.snapshot_ids(world.store) == [10, 11, 12]


def test_a_file_deleted_and_added_again_is_not_lost():
    """An upgrade takes a file away and adds it again; Java's engines do that to files of a key."""
    world = World()
    world.append("a")
    base = dialect.load(world.store, 1)
    entries = manifest.live_entries(world.store, base.state.document, base.schema)
    up = entries.set_column(entries.schema.get_field_index("_LEVEL"), "_LEVEL", pa.array([5], pa.int32()))
    delta = pa.concat_tables([plan._deleted(entries), up])
    made = manifest.emit(delta, base.schema, "manifest-11111111-1111-1111-1111-111111111111")
    before = manifest.read_metas(world.store, base.state.document)
    for path, content in made.files.items():
        world.store.write(path, content)
    for name, metas in (("base", before), ("delta", made.metas)):
        world.store.write(f"manifest/manifest-list-{name}", manifest.emit_list(metas, base.schema))
    document = {**base.state.document, "id": 2, "baseManifestList": "manifest-list-base", "deltaManifestList": "manifest-list-delta",
                "commitKind": "COMPACT", "commitUser": "java"}  # fmt: skip
    world.store.write("snapshot/snapshot-2", metadata.emit_snapshot(document))
    world.at[2] = set(world.live)
    world.append("b")
    world.expire()
    assert world.check(unreachable_gone=True) == set(world.live)


def test_consumers_and_keep_from_protect(table, home):
    for i in range(6):
        table.append(rows(i))
    (home / "consumer").mkdir()
    (home / "consumer/consumer-a").write_text('{"nextSnapshot": 3}')
    (home / "consumer/consumer-b").write_text('{"nextSnapshot": 5}')
    assert table.expire_snapshots(retain_last=1).snapshots == (1, 2)
    (home / "consumer/consumer-a").unlink()
    assert table.expire_snapshots(retain_last=1, keep_from=4).snapshots == (3,)
    assert table.expire_snapshots(retain_last=1).snapshots == (4,)
    (home / "consumer/consumer-b").unlink()
    assert table.expire_snapshots(retain_last=1).snapshots == (5,)
    assert ids(table) == list(range(6))


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(1, None, None), 0),
        (Retention(1, 4, None), 8),
        (Retention(5, 2, None), 7),
        (Retention(1, None, 5000), 2),  # What was replaced before: snapshot n is made at (n + 1) seconds.
        (Retention(1, None, 5001), 3),
        (Retention(1, None, 10**9), 11),
        (Retention(4, None, 10**9), 8),
        (Retention(1, None, 10**9, limit=3), 3),
        (Retention(1, 4, 4000), 8),
        (Retention(20, 1, 10**9), 0),
    ],
)
def test_retention(retention, gone):
    world = World()
    story(world)
    assert world.expire(retention).snapshots == tuple(range(1, gone + 1))
    world.check()


def test_the_tables_own_options_decide_by_default(table):
    table.alter().set_properties(
        {"snapshot.num-retained.min": "2", "snapshot.time-retained": "1 ms", "write-only": "true"}
    ).commit()
    for i in range(5):
        table.append(rows(i))
    time.sleep(0.01)
    assert table.expire_snapshots().snapshots == (1, 2, 3)
    assert table.expire_snapshots().snapshots == ()


# --- with commits -----------------------------------------------------------------------------------------------------


KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}


def there(table):
    return [snapshot.id for snapshot in table.snapshots()]


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        (KEPT, [4, 5, 6]),
        (KEPT | {"write-only": "true"}, [1, 2, 3, 4, 5, 6]),
        ({"snapshot.num-retained.min": "2", "snapshot.time-retained": "0 ms"}, [5, 6]),
        ({"snapshot.time-retained": "1 h"}, [1, 2, 3, 4, 5, 6]),
        (KEPT | {"snapshot.num-retained.max": "1", "snapshot.expire.limit": "1"}, [6]),
        ({"snapshot.expire.limit": "3"}, [1, 2, 3, 4, 5, 6]),  # By the defaults nothing is old enough.
        ({"changelog.num-retained.max": "3"}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_commits_expire_snapshots_where_the_table_asks_for_it(tmp_path, home, properties, kept):
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, properties=properties)
    for i in range(5):
        table.append(rows(i))
        time.sleep(0.002)
    table.overwrite(rows(9))
    assert there(table) == kept
    assert ids(table) == [9]
    assert len(data(home)) == (1 if kept[0] == 6 else 6 if kept[0] < 6 else 0), "what nobody reaches is gone"
    assert (home / "snapshot/EARLIEST").read_text() == str(kept[0])


def stream(table):
    session = table.stream("job")
    session.write_batch(rows(1), 1)
    session.settle()


VERBS = {
    "upsert": lambda t: t.upsert(rows(1)),
    "delete": lambda t: t.delete("id = 1") or t.upsert(rows(1)),
    "merge": lambda t: t.merge_into(rows(1), on="t.id = s.id").when_matched().update({"v": "s.v"}).merge(),
    "stream": stream,
    "compact": lambda t: t.compact(full=True),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_commits_expires_snapshots(tmp_path, verb):
    lake = Lake(str(tmp_path))
    given = {"bucket": "1", "num-sorted-run.compaction-trigger": "3"}
    table = lake.create_table("d.t", SCHEMA, primary_key=["id"], properties=given)
    for i in range(8):
        table.upsert(rows(i))
    before = len(there(table))
    assert before > 8
    table.alter().set_properties(KEPT).commit()
    assert len(there(table)) == before, "no snapshot, no expiry"
    VERBS[verb](table)
    assert len(there(table)) == 3
    assert ids(table) == [i for i in range(8) if (verb, i) != ("delete", 1)]


def test_expiry_with_commits_keeps_what_tags_and_consumers_have_to_read(tmp_path):
    table = Lake(str(tmp_path)).create_table("d.t", SCHEMA, properties=KEPT)
    table.append(rows(1))
    table.create_tag("kept")
    table.overwrite(rows(2))
    for i in range(3, 6):
        table.overwrite(rows(i))
    assert (there(table), ids(table, tag="kept")) == ([3, 4, 5], [1])
    reading = table.changes(from_snapshot=3, consumer="job")
    for i in range(6, 9):
        table.overwrite(rows(i))
    assert there(table)[-1] == 8
    assert there(table)[0] <= 4
    assert reading.to_arrow().num_rows > 0
    table.changes(consumer="job").acknowledge()
    table.overwrite(rows(9))
    assert there(table) == [7, 8, 9]


class Counted(MemoryFiles):
    """Counts calls, and may refuse to delete."""

    calls: tuple = ()
    refuses = False

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name in ("read", "read_many", "list", "names", "folders", "exists", "create", "write", "delete"):
            self.calls = (*self.calls, name)
        return found

    def delete(self, paths):
        if self.refuses:
            raise StoreError("delete: refused")
        super().delete(paths)


def kept_in_memory(properties):
    table = Table("t", Counted(), dialect)
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),), properties=properties))
    return table, doors.store(table)


def test_expiry_with_commits_asks_storage_for_one_listing_where_nothing_goes():
    plain, plain_store = kept_in_memory({})
    for properties, extra in (
        ({"snapshot.num-retained.min": "100"}, {}),  # There cannot be as many.
        ({"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 d"}, {"list": 1}),
        ({"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 d", "write-only": "true"}, {}),
    ):
        table, store = kept_in_memory(properties)
        for i in range(4):
            for written in (plain, table):
                doors.store(written).calls = ()
                written.append(pa.table({"id": [i]}))
            more = Counter(store.calls)
            more.subtract(Counter(plain_store.calls))
        plain, plain_store = kept_in_memory({})
        assert {name: count for name, count in more.items() if count} == extra, properties


def test_expiry_that_fails_fails_no_commit(caplog):
    table, store = kept_in_memory(KEPT | {"snapshot.num-retained.max": "1"})
    table.append(pa.table({"id": [0]}))
    store.refuses = True
    assert table.append(pa.table({"id": [1]})).rows_added == 1
    assert "expiry after snapshot 2 failed; the next commit tries again" in caplog.text
    store.refuses = False
    table.append(pa.table({"id": [2]}))
    assert (there(table), ids(table)) == ([3], [0, 1, 2])


def test_empty_folders_go_only_when_asked(tmp_path):
    for option, left in (("false", True), ("true", False)):
        t = Lake(str(tmp_path)).create_table(
            f"d.t{option}", SCHEMA, partition_by=["dt"], properties={"snapshot.clean-empty-directories": option}
        )
        t.append(rows(1, dt="a"))
        t.append(rows(2, dt="b"))
        t.drop_partitions([{"dt": "a"}])
        t.expire_snapshots(retain_last=1)
        assert (tmp_path / f"d.db/t{option}/dt=a").exists() is left
        assert (tmp_path / f"d.db/t{option}/dt=b/bucket-0").exists()
        assert ids(t) == [2]


@pytest.mark.slow
def test_an_interrupted_expiry_loses_no_changelog_and_the_next_finishes():
    """The plug is pulled before every single file in turn, and before the copies of what goes."""
    whole = World(**LONGER)
    story(whole)
    whole.expire(Retention(10, 10))
    assert metadata.changelog_ids(whole.store) == []  # The oldest two are beyond the eight.
    came = whole.at[7] - whole.at[6]
    assert len(came) == 2
    steps = steps_of(whole, lambda world: world.expire(Retention(3, 3)))
    assert steps > 30
    for n in ends_and_some(range(steps), 8, "expiry to changelogs"):
        world = whole.copy()
        world.store.left = n
        with suppress(StoreError):  # What fails at hints, which come last, is not raised.
            world.expire(Retention(3, 3))
        world.store.left = -1
        there = {*metadata.snapshot_ids(world.store), *metadata.changelog_ids(world.store)}
        assert there >= {*range(5, 13)}
        assert all(world.store.exists(path) for path in world.at[10] | came)
        base = dialect.load(world.store, 12)
        deltas = base.history.delta(6, 7, base.schema.fields)
        assert {path for delta in deltas for task in delta.tasks for path in task.paths} == came
        world.expire(Retention(3, 3))
        assert metadata.snapshot_ids(world.store) == [10, 11, 12]
        assert metadata.changelog_ids(world.store) == [5, 6, 7, 8, 9]
        assert world.data() == world.check() | came
        assert base.expiring.orphans(2) == []
        (left,) = metadata.read_changelogs(world.store, [7])
        named = [
            left["deltaManifestList"],
            *manifest.read_list(world.store, left["deltaManifestList"])["_FILE_NAME"].to_pylist(),
        ]
        assert all(world.store.exists(f"manifest/{name}") for name in named)  # Decoded ones are remembered.


def test_a_tag_that_goes_leaves_the_files_of_a_changelog():
    world = World(**{"changelog.num-retained.min": "20"})
    story(world)
    world.tag("t", 7)
    world.expire()
    came = world.at[7] - world.at[6]
    base = release_tag(world, "t")
    assert all(world.store.exists(path) for path in came)
    assert base.expiring.orphans(2) == []
    deltas = base.history.delta(6, 7, base.schema.fields)
    assert {path for delta in deltas for task in delta.tasks for path in task.paths} == came


def test_a_tag_that_goes_takes_the_changelog_files_that_only_it_kept(tmp_path, home):
    schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
    properties = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = Lake(str(tmp_path)).create_table("d.t", schema, primary_key=["id"], properties=properties)
    for i in range(3):
        table.upsert(pa.table({"id": [1], "v": [str(i)]}, schema=schema))
        if i == 0:
            table.create_tag("first")
    table.expire_snapshots(retain_last=1)
    logs = {name for name in data(home) if "/changelog-" in name}
    assert len(logs) == 2, "of the tag's snapshot and of the newest"
    table.delete_tag("first")
    assert len({name for name in data(home) if "/changelog-" in name}) == 1
    assert ids(table) == [1]


def test_branches_keep_what_they_reach():
    world = World()
    story(world)
    for id in (3, 5):
        world.store.write(f"branch/branch-b{id}/snapshot/snapshot-{id}", world.store.read(f"snapshot/snapshot-{id}"))
        world.store.write(f"branch/branch-b{id}/schema/schema-0", world.store.read("schema/schema-0"))
    world.expire()
    assert all(world.store.exists(p) for id in (3, 5, 12) for p in world.at[id])
    assert dialect.load(world.store, 12).expiring.orphans(2) == []
    world.store.delete(["branch/branch-b3/schema/schema-0"])
    orphan = "dt=a/bucket-0/data-11111111-1111-1111-1111-111111111111-0.parquet"
    world.store.write(orphan, b"orphan")
    assert [listed.path for listed in dialect.load(world.store, 12).expiring.orphans(2)] == [orphan]


# --- a model of Java's expiry -----------------------------------------------------------------------------------------


def java_expires(store, keep):
    """ExpireSnapshotsImpl: the DELETE entries of the deltas of (begin, end], less those that come again, less those of the
    nearest tag before; then the manifests that the end does not name. Snapshots that are not there are passed over."""
    there = metadata.snapshot_ids(store)
    begin, end = there[0], there[-1] - keep + 1
    if end <= begin:
        return
    tags = sorted(metadata.tags(store).values(), key=lambda d: d["id"])

    schema = dialect.load(store, there[-1]).schema

    def names(entries):
        return scan.paths(entries, schema).to_pylist()

    for id in range(begin + 1, end + 1):
        if id not in there:
            continue
        document = metadata.read_snapshot(store, id)
        metas = manifest.read_list(store, document["deltaManifestList"])
        doomed = {}
        for table in manifest.read_all(store, metas):
            for path, kind in zip(names(table), table["_KIND"].to_pylist(), strict=True):
                if kind == manifest.EntryKind.DELETE:
                    doomed[path] = True
                else:
                    doomed.pop(path, None)
        before = [d for d in tags if d["id"] < id]
        kept = set(names(manifest.live_entries(store, before[-1], schema))) if before else set()
        store.delete([p for p in doomed if p not in kept])
    staying = [metadata.read_snapshot(store, min(i for i in there if i >= end))]
    staying += [d for d in tags if begin <= d["id"] < end]
    skipped = set()
    for document in staying:
        skipped |= {document["baseManifestList"], document["deltaManifestList"]}
        skipped |= set(manifest.read_metas(store, document)["_FILE_NAME"].to_pylist())
    for id in [i for i in there if i < end]:
        document = metadata.read_snapshot(store, id)
        doomed = {document["baseManifestList"], document["deltaManifestList"]}
        doomed |= set(manifest.read_metas(store, document)["_FILE_NAME"].to_pylist())
        store.delete([f"manifest/{n}" for n in doomed - skipped])
    store.delete([f"snapshot/snapshot-{i}" for i in there if i < end])


@pytest.mark.parametrize("keep", [1, 2, 3, 5])
def test_java_may_expire_what_we_wrote(keep):
    world = World()
    story(world)
    java_expires(world.store, keep)
    world.check()


@pytest.mark.drawn(5)
@pytest.mark.parametrize("target", range(1, 12))
def test_java_may_expire_after_a_rollback(target):
    world = World()
    story(world)
    made = world.restore(target)
    assert metadata.snapshot_ids(world.store) == [*range(1, target + 1), made]
    world.append("a")
    world.overwrite("b")
    for keep in (3, 2, 1):
        java_expires(world.store, keep)
        world.check()


@pytest.mark.parametrize("target", [1, 4, 6, 9])
def test_our_own_expiry_after_a_rollback_that_was_cut_short(target):
    """The replaced snapshots are still there: they go first, and their files only when nobody reaches them."""
    for tidy in (False, True):
        world = World()
        story(world)
        made = world.restore(target, tidy)
        world.append("a")
        world.expire(Retention(50, None))
        assert metadata.snapshot_ids(world.store) == [*range(1, target + 1), made, made + 1]
        world.check()
        world.expire()
        world.check()
        sweep.sweep(world.store, dialect, 2, dry_run=False)
        world.check(unreachable_gone=True)


def test_rollbacks_of_rollbacks():
    world = World()
    story(world)
    first = world.restore(4, tidy=False)
    world.append("a")
    second = world.restore(first, tidy=False)
    world.append("b")
    world.restore(2, tidy=False)
    world.append("c")
    world.expire(Retention(50, None))
    assert metadata.snapshot_ids(world.store) == [1, 2, second + 2, second + 3]
    world.check()
    sweep.sweep(world.store, dialect, 2, dry_run=False)
    world.check(unreachable_gone=True)
    with pytest.raises(NotFound):
        world.restore(4)


def test_an_interrupted_removal_of_replaced_history_hides_nothing():
    n, whole = -1, World()
    story(whole)
    made = whole.restore(4, tidy=False)
    while True:
        n += 1
        world = whole.copy()
        world.store.left = n
        try:
            world.tidy(made)
        except StoreError:
            world.store.left = -1
            world.check()
            assert metadata.snapshot_ids(world.store)[-1] == made
            world.append("b")
            world.expire(Retention(50, None))
            assert metadata.snapshot_ids(world.store) == [1, 2, 3, 4, made, made + 1]
            world.check()
            continue
        break
    assert n == 9  # With the mark that is written first.


# --- rollback and tags through the verbs ------------------------------------------------------------------------------


def test_an_append_that_races_a_rollback_lands_after_it(table):
    for i in (1, 2, 3):
        table.append(rows(i))
    base = doors.view(table)
    request, _ = doors.runner(table).request(base, None)
    operation = append(doors.runner(table).change(base, request), rows(9))
    back = table.rollback_to(1)
    made = doors.runner(table).commit(base, operation)
    assert (back.id, made.id) == (4, 5)
    assert ids(table) == [1, 9]
    assert [s.id for s in table.snapshots()] == [1, 4, 5]
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(datetime.timedelta(0))
    assert ids(table) == [1, 9]


def test_a_rollback_asked_again_is_the_same(table):
    for i in (1, 2, 3):
        table.append(rows(i))
    first = table.rollback_to(1, id="r")
    table.append(rows(9))
    assert table.rollback_to(1, id="r").id == first.id
    table.expire_snapshots(retain_last=2)
    assert table.rollback_to(1, id="r").id == first.id
    assert ids(table) == [1, 9]


def test_rollback_to_a_tag_whose_snapshot_expired(table, home):
    for i in (1, 2, 3):
        table.append(rows(i))
    table.overwrite(rows(4))
    table.create_tag("two", snapshot_id=2)
    table.expire_snapshots(retain_last=1)
    assert ids(table, tag="two") == [1, 2]
    made = table.rollback_to(tag="two")
    assert ids(table) == [1, 2]
    assert [s.id for s in table.snapshots()] == [made.id]
    table.delete_tag("two")
    table.append(rows(5))
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(datetime.timedelta(0))
    assert ids(table) == [1, 2, 5]
    assert len(data(home)) == 3


def test_a_tag_made_of_what_a_rollback_replaced_keeps_it(table):
    for i in (1, 2, 3):
        table.append(rows(i))
    table.create_tag("three")
    table.rollback_to(1)
    table.append(rows(9))
    table.expire_snapshots(retain_last=1)
    table.remove_orphan_files(datetime.timedelta(0))
    assert (ids(table), ids(table, tag="three")) == ([1, 9], [1, 2, 3])
    table.delete_tag("three")
    table.remove_orphan_files(datetime.timedelta(0))
    assert ids(table) == [1, 9]


def test_a_tag_whose_time_is_over_goes_with_the_files_only_it_kept(table, home):
    table.append(rows(1))
    table.create_tag("short", retain=datetime.timedelta(0))
    table.create_tag("long", retain=datetime.timedelta(days=1))
    table.overwrite(rows(2))
    time.sleep(0.01)
    table.expire_snapshots(retain_last=1)
    assert table.inspect.tags()["tag_name"].to_pylist() == ["long"]
    assert len(data(home)) == 2
    table.delete_tag("long")
    assert len(data(home)) == 1
    assert ids(table) == [2]


# --- the sweep --------------------------------------------------------------------------------------------------------

STRANGERS = [
    "notes.txt", "dt=x/readme.md", "dt=x/bucket-0/mine.parquet", "manifest/keep.me", "snapshot/snapshot-1.bak",
    "schema/schema-0.old", "tag/x.bak", "other/data-00000000-0000-0000-0000-000000000000-0.parquet",
    "data-00000000-0000-0000-0000-000000000000-0.parquet", "consumer/x", "service/primary-key-lookup", "index/mine",
]  # fmt: skip
LEFT_BEHIND = [
    "dt=x/bucket-0/data-00000000-0000-0000-0000-000000000000-0.parquet",
    "dt=x/bucket-0/changelog-00000000-0000-0000-0000-000000000000-3.orc",
    "dt=gone/bucket-7/data-00000000-0000-0000-0000-000000000000-0.zstd.parquet",
    "dt=x/bucket-postpone/data-u-me-s-1-w-00000000-0000-0000-0000-000000000000-0.avro",
    "dt=x/bucket-0/data-00000000-0000-0000-0000-000000000000-0.parquet.index",
    "dt=x/bucket-0/.data-0.parquet.00000000-0000-0000-0000-000000000000.tmp",
    "manifest/manifest-00000000-0000-0000-0000-000000000000-0",
    "manifest/manifest-list-00000000-0000-0000-0000-000000000000-1",
    "manifest/index-manifest-00000000-0000-0000-0000-000000000000-0",
    "index/index-00000000-0000-0000-0000-000000000000-0",
    "statistics/stat-00000000-0000-0000-0000-000000000000-0",
    "snapshot/.snapshot-9.00000000-0000-0000-0000-000000000000.tmp",
]  # fmt: skip


def test_the_sweep_takes_what_engines_leave_behind_and_nothing_else(table, home):
    table.append(rows(1))
    table.overwrite(rows(2))
    table.create_tag("t", snapshot_id=1)
    for name in (*STRANGERS, *LEFT_BEHIND):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert table.remove_orphan_files() == []
    time.sleep(0.02)
    shown = table.remove_orphan_files(datetime.timedelta(0), dry_run=True)
    assert sorted(f.path for f in shown) == sorted(LEFT_BEHIND)
    assert all((home / name).exists() for name in LEFT_BEHIND)
    assert sorted(f.path for f in table.remove_orphan_files(datetime.timedelta(0))) == sorted(LEFT_BEHIND)
    assert not any((home / name).exists() for name in LEFT_BEHIND)
    assert all((home / name).exists() for name in STRANGERS)
    assert (ids(table), ids(table, tag="t")) == ([2], [1])


def test_a_sweep_that_races_commits_takes_nothing_of_theirs(table):
    """Files that are younger than the sweep's age are nobody's to take, whatever lands meanwhile."""
    stop, failures = threading.Event(), []

    def sweeping():
        while not stop.is_set():
            try:
                table.remove_orphan_files(datetime.timedelta(seconds=60))
                table.expire_snapshots(retain_last=2)
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=sweeping)
    thread.start()
    for i in range(15):
        table.append(rows(i))
    table.compact()
    stop.set()
    thread.join()
    assert [f for f in failures if not isinstance(f, LakeError)] == []
    assert failures == []
    assert ids(table) == list(range(15))


def test_a_commit_between_the_listing_and_the_reading_is_safe():
    world = World()
    story(world)

    class Late(MemoryFiles):
        """Commits something right after its files have been listed."""

        listed = False

        def list(self, prefix):
            found = super().list(prefix)
            if prefix == "" and not self.listed:
                self.listed = True
                added = (WrittenFile(path, ("a",), 1, 4),)
                commit(self, dialect.head(self), dialect, Append(request=Request(id="late"), added=added))
            return found

    late = Late("memory://late", now_ms=lambda: 1)
    for f in world.store.list(""):
        late.write(f.path, world.store.read(f.path))
    path = "dt=a/bucket-0/data-22222222-2222-2222-2222-222222222222-0.parquet"
    late.write(path, b"rows")
    assert sweep.sweep(late, dialect, 2, dry_run=False) == []
    assert late.exists(path)


# --- partitions that are over -----------------------------------------------------------------------------------------


def test_partitions_go_by_their_value(tmp_path):
    def at(days):
        return (datetime.datetime.now() - datetime.timedelta(days=days)).strftime("%Y%m%d")

    t = Lake(str(tmp_path)).create_table(
        "d.t",
        SCHEMA,
        partition_by=["dt"],
        properties={"partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyyMMdd"},
    )
    values = {1: at(0), 2: at(6), 3: at(9), 4: at(400), 5: "nonsense", 6: None, 7: ""}
    for id, dt in values.items():
        t.append(pa.table({"id": [id], "v": ["v"], "dt": pa.array([dt], pa.string())}))
    made = t.expire_partitions()
    assert sorted(p.values[0] for p in made.partitions) == sorted([at(9), at(400)])
    assert ids(t) == [1, 2, 5, 6, 7]
    assert t.expire_partitions() is None
    assert t.expire_partitions(options={"partition.expiration-time": "5 d"}).rows_removed == 1
    assert ids(t) == [1, 5, 6, 7]


def test_a_date_column_needs_no_pattern(tmp_path):
    today = datetime.date.today()
    t = Lake(str(tmp_path)).create_table(
        "d.t", pa.schema([("id", pa.int64()), ("d", pa.date32())]), partition_by=["d"],
        properties={"partition.expiration-time": "7 d", "partition.expiration-max-num": "1"},
    )  # fmt: skip
    t.append(pa.table({"id": [1, 2, 3], "d": [today - datetime.timedelta(n) for n in (0, 20, 30)]}))
    assert t.expire_partitions().rows_removed == 1
    assert ids(t) == [1, 2]  # The oldest first, one at a time.
    t.expire_partitions()
    assert ids(t) == [1]


def test_partitions_go_by_their_newest_file(table):
    table.append(rows(1, dt="a"))
    table.alter().set_properties(
        {"partition.expiration-time": "2 s", "partition.expiration-strategy": "update-time"}
    ).commit()
    assert table.expire_partitions() is None
    base, now_ms = doors.view(table), int(time.time() * 1000)
    scope = base.expiring.partitions(now_ms + 10_000)
    assert set(base.files(scope).paths.to_pylist()) == set(table.inspect.files()["path"].to_pylist())
    table.alter().set_properties({"partition.expiration-strategy": "by-mood"}).commit()
    with pytest.raises(UnsupportedFeature, match="by-mood"):
        table.expire_partitions()
    table.alter().set_properties(
        {"partition.expiration-strategy": "values-time", "partition.timestamp-formatter": "yyyy-QQ"}
    ).commit()
    with pytest.raises(InvalidInput, match="QQ"):
        table.expire_partitions()


def test_without_the_option_nothing_is_over(table):
    table.append(rows(1, dt="1970-01-01"))
    assert table.expire_partitions() is None


def test_conflicts_are_distinguished_from_missing_files(table, home):
    """A pin whose history expired cannot be checked, and says so."""
    first = table.append(rows(1)).id
    for i in (2, 3):
        table.append(rows(i))
    table.expire_snapshots(retain_last=1)
    with pytest.raises(Conflict, match="not complete"):
        table.overwrite(rows(9), pinned_to=first)
    (home / "snapshot/snapshot-3").rename(home / "elsewhere")
    with pytest.raises((NotFound, NoSuchFile)):
        table.scan(snapshot_id=3)


# --- edges ------------------------------------------------------------------------------------------------------------


def aged(properties, snapshots=4):
    """A table in memory whose snapshots were written at 0, 100, 200 ..."""
    clock = [0]
    table = Table("t", MemoryFiles(now_ms=lambda: clock[0]), dialect)
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),), properties={"write-only": "true"}))
    for number in range(snapshots):
        clock[0] = 100 * number
        table.append(pa.table({"id": [number]}))
    table.evolve([evolution.RemoveProperties(("write-only",)), evolution.SetProperties(properties)])
    return table


def unseen(table):
    """The table in a store of its own: decoded manifests are kept by where they lie."""
    World.number += 1
    store = MemoryFiles(f"memory://unseen-{World.number}", now_ms=lambda: 1)
    for f in doors.store(table).list(""):
        store.write(f.path, doors.store(table).read(f.path))
    return Table("t", store, dialect)


@pytest.mark.parametrize(
    ("properties", "is_due"),
    [
        ({"snapshot.num-retained.max": "3"}, True),
        ({"snapshot.num-retained.max": "4"}, False),
        ({"snapshot.time-retained": "899 ms"}, True),  # The second was written at 100, and it is 1000.
        ({"snapshot.time-retained": "900 ms"}, False),
        ({"snapshot.num-retained.min": "3", "snapshot.time-retained": "1 ms"}, True),
        ({"snapshot.num-retained.min": "4", "snapshot.time-retained": "1 ms"}, False),
        ({"snapshot.num-retained.max": "1", "write-only": "true"}, False),
        ({}, False),
    ],
)
def test_expiry_is_due_after_a_commit_where_something_may_go(properties, is_due):
    table = aged({"snapshot.num-retained.min": "1"} | properties if properties else {})
    store, view = doors.store(table), doors.view(table)
    made = table.current_snapshot()
    assert view.expiring.due(made, 1000) is None, "no snapshot was made"
    before = replace(view, state=replace(view.state, version=3))
    kept = before.expiring.due(made, 1000)
    assert (kept is not None) is is_due
    if is_due:
        assert kept == view.expiring.default_retention(1000)
        for reads, stays in ((1, True), (2, False)):
            store.write("consumer/consumer-job", json.dumps({"nextSnapshot": reads}).encode())
            assert (before.expiring.due(made, 1000) is None) is stays


def test_a_tag_that_goes_leaves_the_manifests_that_snapshots_and_tags_name():
    table = aged({}, 3)
    table.create_tag("one", 1)
    table.create_tag("two", 2)
    table.expire_snapshots(retain_last=1)
    table.delete_tag("one")
    assert ids(unseen(table), tag="two") == [0, 1]
    assert ids(unseen(table)) == [0, 1, 2]
    table.delete_tag("two")
    assert ids(unseen(table)) == [0, 1, 2]
    assert doors.view(table).expiring.orphans(10_000) == []


def test_hints_of_changelogs_name_the_first_and_the_last():
    world = World(**LONGER)
    story(world)
    world.expire(Retention(3, 3))
    there = metadata.changelog_ids(world.store)
    assert len(there) > 2
    for name, id in (("EARLIEST", there[0]), ("LATEST", there[-1])):
        assert world.store.read(f"changelog/{name}") == str(id).encode()
    assert world.store.read("snapshot/EARLIEST") == b"10"


ID = "0190a5f2-7d3b-7c4e-8a9b-0123456789ab"
SWEPT = [
    f"bucket-0/data-{ID}-0.parquet", f"dt=a/bucket-1/data-{ID}-1.orc", f"bucket-0/changelog-{ID}-0.avro",
    f"bucket-0/data-{ID}-0.parquet.index", f"manifest/manifest-{ID}-0", f"manifest/manifest-list-{ID}-0",
    f"manifest/index-manifest-{ID}-0", f"index/index-{ID}-0", f"statistics/stat-{ID}-0", f"bucket-0/.x.{ID}.tmp", "snapshot/.snapshot-9.tmp",
]  # fmt: skip
# A drop takes them too.
OWN = ["snapshot/EARLIEST", "consumer/consumer-x", "dt=a/_SUCCESS"]
OF_OTHERS = [
    "mine.parquet",
    f"other/data-{ID}-0.parquet",
    "bucket-0/mine.parquet",
    "manifest/mine",
    "tag/mine",
    "schema/mine",
    "_SUCCESS",
]


def test_the_sweep_and_a_drop_know_files_by_place_and_name():
    table = aged({}, 2)
    for path in (*SWEPT, *OWN, *OF_OTHERS):
        doors.store(table).write(path, b"1")
    assert {orphan.path for orphan in doors.view(table).expiring.orphans(10_000)} == set(SWEPT)
    doors.store(table).write("bucket-0/.data.parquet.crc", b"x")
    doors.store(table).write(f"bucket-0/.data-{ID}-0.parquet.crc", b"x")
    waves = dialect.everything(doors.store(table)).waves
    gone = {path for wave in waves for path in wave}
    there = {file.path for file in doors.store(table).list("")}
    assert there - gone == {*OF_OTHERS, "bucket-0/.data.parquet.crc"}
    assert set(waves[-1]) == {path for path in there if path.startswith("schema/schema-")}
    assert waves[-2] == ("snapshot/snapshot-2",)


def test_a_table_that_cannot_be_read_is_not_cleaned_up():
    world = World()
    story(world)
    world.tag("t", 3)
    base = dialect.load(world.store, 12).state
    strange = replace(base.schema, properties={**base.schema.properties, "blob-view-field": "v"})
    for asked in (replace(base, newest=strange), replace(base, schema=strange)):
        for verb in (
            lambda base: expire.Expiring(world.store, base).snapshots(ONE, 1),
            lambda base: expire.Expiring(world.store, base).of_tag("t"),
            lambda base: expire.Expiring(world.store, base).orphans(2),
        ):
            verb(base)
            with pytest.raises(UnsupportedFeature, match="blob-view-field"):
                verb(asked)


def test_changelogs_go_where_no_snapshot_does():
    world = World(**LONGER)
    story(world)
    world.expire(Retention(3, 3))
    ids = metadata.snapshot_ids(world.store)
    assert metadata.changelog_ids(world.store) == [5, 6, 7, 8, 9]
    base = dialect.load(world.store, 12).state
    assert expire.Expiring(world.store, base).snapshots(Retention(3, 3), world.clock) is expire.NOTHING
    fewer = replace(
        base.schema, properties={**LONGER, "changelog.num-retained.min": "5", "changelog.num-retained.max": "5"}
    )
    found = expire.Expiring(world.store, replace(base, schema=fewer)).snapshots(Retention(3, 3), world.clock)
    assert found.snapshots == ()
    maintenance.remove(world.store, found)
    assert metadata.changelog_ids(world.store) == [8, 9]
    assert dialect.load(world.store, 12).expiring.orphans(2) == []
    assert all(world.store.exists(path) for path in world.at[9] - world.at[8])
    assert (metadata.snapshot_ids(world.store), world.store.read("changelog/EARLIEST")) == (ids, b"8")
    world.check()


def test_changelog_files_go_with_changelogs_that_outlived_their_snapshots(tmp_path, home):
    schema = pa.schema([pa.field("id", pa.int64(), False)])
    properties = {"bucket": "1", "changelog-producer": "input", "write-only": "true", **LONGER}
    table = Lake(str(tmp_path)).create_table("d.t", schema, primary_key=["id"], properties=properties)
    for i in range(8):
        table.upsert(pa.table({"id": [i]}, schema=schema))
    table.expire_snapshots(retain_last=3)
    assert len({name for name in data(home) if "/changelog-" in name}) == 8
    fewer = {"changelog.num-retained.min": "4", "changelog.num-retained.max": "4"}
    table.alter().set_properties(fewer).commit()
    table.expire_snapshots(retain_last=3)
    assert len({name for name in data(home) if "/changelog-" in name}) == 4


def test_the_newest_snapshot_stays_whatever_the_options_ask_for():
    table = Table("t", MemoryFiles(), dialect)
    none = {"snapshot.num-retained.min": "0", "snapshot.num-retained.max": "0"}
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),), properties=none))
    for id in (1, 2, 3):
        table.overwrite({"id": [id]})
    assert (ids(table), [snapshot.id for snapshot in table.snapshots()]) == ([3], [3])


def test_a_tag_that_goes_leaves_what_changelogs_of_branches_are_read_from(tmp_path, home):
    kept = {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "8", "changelog.num-retained.max": "8"}
    fewer = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "1"}
    table = Lake(str(tmp_path)).create_table("d.t", pa.schema([("id", pa.int64())]), properties=kept)
    table.append({"id": [1]})
    table.create_tag("t")
    branch = table.create_branch("b", tag="t")
    table.alter().set_properties(fewer).commit()
    for each, id in ((table, 10), (branch, 20)):
        each.overwrite({"id": [id]})
        each.append({"id": [id + 1]})
        each.expire_snapshots(retain_last=1, older_than="2100-01-01")
        assert len(each.snapshots()) == 1
    branch.delete_tag("t")
    table.delete_tag("t")
    assert branch.changes(0, 1).to_arrow()["id"].to_pylist() == [1]
    branch.alter().set_properties(fewer).commit()
    branch.expire_snapshots(retain_last=1)
    table.remove_orphan_files(older_than="2100-01-01")
    assert (ids(table), ids(branch), len(data(home))) == ([10, 11], [20, 21], 4)


def test_index_files_beside_data_files_go_with_them():
    world = World()
    story(world)
    for f in world.store.list("manifest"):
        if not f.path.startswith("manifest/manifest-list-"):
            found = manifest.parse(world.store.read(f.path), f.path)
            extra = pa.array([[f"{name}.index"] for name in found["_FILE_NAME"].to_pylist()], pa.list_(pa.string()))
            found = found.set_column(
                found.schema.get_field_index("_EXTRA_FILES"), manifest.ENTRY.field("_EXTRA_FILES"), extra
            )
            made = manifest.emit(
                found, dialect.load(world.store, 12).state.schema, f.path.rpartition("/")[2].rpartition("-")[0]
            )
            world.store.write(f.path, next(iter(made.files.values())))
    for path in sorted(world.data()):
        world.store.write(f"{path}.index", b"1")
    world = world.copy()
    world.store.write(f"dt=a/bucket-0/data-{ID}-0.parquet.index", b"nobody's")
    assert [orphan.path for orphan in dialect.load(world.store, 12).expiring.orphans(2)] == [
        f"dt=a/bucket-0/data-{ID}-0.parquet.index"
    ]
    world.expire(Retention(3, 3))
    reachable = world.check()
    assert world.data() == reachable | {f"{path}.index" for path in reachable} | {
        f"dt=a/bucket-0/data-{ID}-0.parquet.index"
    }


def test_a_drop_takes_files_of_other_names_that_the_table_uses():
    world = World()
    name = "dt=a/bucket-0/of-another-engine.parquet"
    world.store.write(name, b"rows")
    world.append("a")
    world.commit(Append(request=world.request(), added=(WrittenFile(name, ("a",), 1, 4),)))
    first = metadata.read_snapshots(world.store, [1])[0]["deltaManifestList"]
    world = world.copy()
    world.store.delete([f"manifest/{first}"])  # As a drop that was cut short leaves it.
    assert name in {path for wave in dialect.everything(world.store).waves for path in wave}


def test_a_stray_goes_where_no_snapshot_does():
    world = World()
    for partition in ("a", "b", "c"):
        world.append(partition)
    late = dialect.load_snapshot(world.store, 1).plan(
        Append(request=Request(id="late"), added=(world.file("a"),)), Stamp(world.clock, "late", 0)
    )
    world.append("a")
    world.expire(Retention(2, 2))
    for path, content in late.files.items():
        world.store.write(path, content)
    world.store.create(late.root_path, late.root)
    assert metadata.snapshot_ids(world.store) == [2, 3, 4]
    found = world.expire(Retention(2, 2))
    assert (found.snapshots, metadata.snapshot_ids(world.store)) == ((), [3, 4])
    world.check()


def test_history_that_a_rollback_replaced_goes_newest_first():
    world = World()
    for _ in range(4):
        world.append("a")
    made = world.restore(1, tidy=False)
    found = expire.Expiring(world.store, metadata.NOTHING).of_restore(made)
    assert found.snapshots == (4, 3, 2)
    assert found.waves == (tuple(f"snapshot/snapshot-{i}" for i in (4, 3, 2)),)
    world.append("b")
    again = world.restore(made, tidy=False)
    assert expire.Expiring(world.store, metadata.NOTHING).of_restore(made).snapshots == (4, 3, 2)
    assert expire.Expiring(world.store, metadata.NOTHING).of_restore(again).snapshots == (made + 1, 4, 3, 2)


def test_files_and_partitions_of_just_the_age_stay():
    table = aged({}, 1)
    doors.store(table).write(f"manifest/manifest-{ID}-0", b"1")  # At 0.
    assert (len(doors.view(table).expiring.orphans(0)), len(doors.view(table).expiring.orphans(1))) == (0, 1)
    world = World(**{"partition.expiration-time": "1 d"})
    world.append("2023-01-02")
    base = dialect.load(world.store, 1).state
    over = int(datetime.datetime(2023, 1, 3).timestamp() * 1000)
    assert expire.Expiring(world.store, base).partitions(over) is None
    assert expire.Expiring(world.store, base).partitions(over + 1) is not None


def documents(*ids, kind="APPEND"):
    return {id: {"id": id, "timeMillis": 100 * id, "commitKind": kind} for id in ids}


def with_options(properties):
    return Schema((Field(0, "id", scalar(Kind.BIGINT)),), properties=properties)


@pytest.mark.parametrize(
    ("ids", "least", "most", "now_ms", "consumer", "over"),
    [
        ((4, 5), 2, 5, 400, None, {1}),  # The successor of 2 was made at 300, and what is 100 ms old stays.
        ((4, 5), 2, 5, 401, None, {1, 2}),
        ((4, 5), 2, 5, 10**6, None, {1, 2, 3}),
        ((4, 5), 3, 5, 10**6, None, {1, 2}),
        ((4, 5), 2, 3, 0, None, {1, 2}),
        ((4, 5), 2, 5, 10**6, 2, {1}),
        ((), 1, 1, 10**6, None, set()),
    ],
)
def test_the_changelogs_that_are_over(ids, least, most, now_ms, consumer, over):
    store = MemoryFiles()
    if consumer:
        store.write("consumer/consumer-job", json.dumps({"nextSnapshot": consumer}).encode())
    kept = {"num-retained.min": str(least), "num-retained.max": str(most), "time-retained": "100 ms"}
    schema = with_options({f"changelog.{key}": value for key, value in kept.items()})
    assert expire._over(store, schema, documents(1, 2, 3), documents(*ids), ids, now_ms) == over


@pytest.mark.parametrize(
    ("kind", "properties", "old"),
    [
        ("APPEND", {}, [1, 2]),
        ("OVERWRITE", {}, [1]),  # Its changes are read from the rows before it too.
        ("APPEND", {"consumer.changelog-only": "true"}, [1, 2]),
        ("APPEND", {"changelog.num-retained.max": "2147483647", "changelog.time-retained": "9 d"}, [1, 2]),
        ("APPEND", {"consumer.changelog-only": "true", "changelog.time-retained": "9 d"}, [1, 2, 3, 4]),
    ],
)
def test_snapshots_wait_for_consumers_unless_changelogs_do(kind, properties, old):
    store = MemoryFiles()
    store.write("consumer/consumer-job", json.dumps({"nextSnapshot": 3}).encode())
    ids = range(1, 6)
    found = expire._old(store, with_options(properties), ids, documents(*ids, kind=kind), ONE)
    assert found == old
    store.write("consumer/consumer-job", json.dumps({"nextSnapshot": 9}).encode())
    assert expire._old(store, with_options(properties), ids, documents(*ids, kind=kind), ONE) == [1, 2, 3, 4]


def test_partitions_are_marked_as_done_as_java_does(tmp_path):
    lake = Lake(tmp_path)
    schema = pa.schema([("k", pa.int32()), ("dt", pa.date32()), ("h", pa.string())])
    rows = pa.table([[1], [datetime.date(2024, 1, 2)], ["a/b"]], schema=schema)
    table = lake.create_table("d.t", schema, format="paimon", partition_by=["dt", "h"])
    table.append(rows)
    mark = (
        tmp_path / "d.db" / "t" / "dt=19724" / "h=a%2Fb" / "_SUCCESS"
    )  # The number of the day: partition.legacy-name.
    done = [{"DT": "2024-01-02", "h": "a/b"}]
    table.mark_partitions_done(done)
    first = json.loads(mark.read_text())
    assert first["creationTime"] == first["modificationTime"] > 1e12
    mark.write_text(json.dumps({"creationTime": 5, "modificationTime": 6}))
    table.mark_partitions_done(done)
    again = json.loads(mark.read_text())
    assert again["creationTime"] == 5
    assert again["modificationTime"] >= first["modificationTime"]
    assert table.remove_orphan_files(older_than=datetime.timedelta(0)) == []
    assert mark.exists()
    for wrong, said in (
        ([], "no partition is named"),
        ([{"dt": "2024-01-02"}], "leaves out h"),
        ([{"k": 1}], "not a partition column"),
    ):
        with pytest.raises(InvalidInput, match=said):
            table.mark_partitions_done(wrong)
    table.alter().set_properties({"partition.mark-done-action": "success-file,http-report"}).commit()
    with pytest.raises(UnsupportedFeature, match="http-report"):
        table.mark_partitions_done(done)
    with pytest.raises(UnsupportedFeature, match="Iceberg"):
        lake.create_table("d.i", schema, format="iceberg", partition_by=["dt"]).mark_partitions_done(
            [{"dt": "2024-01-02"}]
        )


@pytest.mark.parametrize("cause", [None, NoSuchFile("gone")], ids=["a file", "a file behind it"])
def test_what_another_process_deletes_on_the_way_is_planned_anew(cause):
    table = Table("t", MemoryFiles(), dialect)
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),)))
    views = []

    def planned(error):
        def plan(view):
            views.append(view)
            if len(views) == 1:
                raise error from cause
            return "planned"

        views.clear()
        return maintenance.planned(doors.store(table), dialect, doors.view(table), plan)[1]

    assert (planned(NotFound("a list") if cause else NoSuchFile("gone")), len(views)) == ("planned", 2)
    if cause is None:
        with pytest.raises(Conflict, match="another reason"):
            planned(Conflict("another reason"))
        assert len(views) == 1


class Between(MemoryFiles):
    """Calls `then` once, when a snapshot has been pinned."""

    then = None

    def create(self, path, data):
        created = super().create(path, data)
        if path.startswith("tag/") and self.then is not None:
            then, self.then = self.then, None
            then()
        return created


@pytest.mark.parametrize("verb", ["rollback_to", "create_branch"])
def test_a_tag_that_is_deleted_on_the_way_keeps_nothing(verb):
    store = Between()
    table = Table("t", store, dialect)
    create(table, Schema((Field(0, "id", scalar(Kind.BIGINT)),)))
    table.append({"id": [1]})
    table.create_tag("good")
    table.overwrite({"id": [2]})
    table.expire_snapshots(retain_last=1)
    store.then = lambda: Table("t", store, dialect).delete_tag("good")
    with pytest.raises(NotFound, match="tag 'good' has been deleted meanwhile"):
        table.rollback_to(tag="good") if verb == "rollback_to" else table.create_branch("b", tag="good")
    assert (store.then, ids(table), table.missing_files(), table.inspect.branches().num_rows) == (None, [2], [], 0)


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_table_goes_on_without_the_files_that_are_missing(tmp_path, format):
    lake = Lake(tmp_path)
    schema = pa.schema([("k", pa.int64()), ("p", pa.int64())])
    table = lake.create_table(
        "d.t",
        schema,
        format=format,
        partition_by=["p"],
        properties={"write.delete.mode": "merge-on-read"} if format == "iceberg" else {},
    )
    for k in range(3):
        table.append({"k": [k, k + 10], "p": [k % 2] * 2})
    assert table.remove_missing_files() is None
    (lost,) = [stored_file.path for stored_file in table.stored_files() if "p=1/" in stored_file.path]
    doors.store(table).delete([lost])
    again = Lake(tmp_path).table("d.t")
    assert len(again.missing_files()) == 1
    made = again.remove_missing_files(id="once")
    assert (made.kind, made.files_removed, made.rows_removed, made.total_rows) == ("delete", 1, 2, 4)
    assert sorted(again.scan().to_arrow()["k"].to_pylist()) == [0, 2, 10, 12]
    assert again.remove_missing_files(id="once").id == made.id
    assert (again.missing_files(), again.remove_missing_files()) == ([], None)
    if format == "iceberg":
        again.delete("k = 10")
        (deletes,) = {*again.inspect.delete_files()["path"].to_pylist()}
        doors.store(again).delete([deletes.removeprefix(f"{doors.store(again).root}/")])
        again = Lake(tmp_path).table("d.t")
        with pytest.raises(UnsupportedFeature, match="would come back"):
            again.remove_missing_files()


def test_a_purged_table_begins_anew(tmp_path):
    lake = Lake(tmp_path)
    table = lake.create_table("d.t", pa.schema([("k", pa.int64())]))
    table.append({"k": [1]})
    table.alter().add_column("x", "int").commit()
    table.create_tag("good")
    table.create_branch("b", tag="good")
    (tmp_path / "d.db" / "t" / "somebody.else").write_text("")
    table.purge()
    assert [stored_file.path for stored_file in table.stored_files()] == [
        "schema/schema-0",
        "schema/schema-1",
        "somebody.else",
    ]
    assert (table.scan().count(), table.snapshots(), lake.table("d.t").schema.names) == (0, [], ("k", "x"))
    table.append({"k": [2], "x": [3]})
    assert [snapshot.id for snapshot in lake.table("d.t").snapshots()] == [1]
    assert lake.table("d.t").scan().to_arrow()["k"].to_pylist() == [2]
    table.purge()
    table.purge()
    with pytest.raises(UnsupportedFeature, match="truncate"):
        lake.create_table("d.i", pa.schema([("k", pa.int64())]), format="iceberg").purge()
