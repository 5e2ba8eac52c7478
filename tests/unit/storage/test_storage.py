"""One contract for every Store: local files, files in memory, objects behind S3's protocol."""

import io
import multiprocessing
import os
import pickle
import resource
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat import Lake
from lakeformat.errors import InvalidInput, NoSuchFile, StoreError, StoreRefused
from lakeformat.storage.cache import Cache
from lakeformat.storage.files import open_store
from lakeformat.storage.local import LocalFiles
from lakeformat.storage.memory import MemoryFiles
from lakeformat.storage.store import Store
from lakeformat.storage.streams import NewFile, Ranges
from tests.unit.racers import create_all
from tests.unit.s3_server import S3Server

AWKWARD_NAMES = [
    "dt=2023%3A05/a.parquet",
    "name=a b/f",
    "k=ü/日本.txt",
    "q#?x/f",
    "p+q&r/f",
    "a*b'c/[d]{e}",
    "x=%%25/100%",
    'q=a"b/<f>|`~^',
    "back\\slash/f",
    "dt=12:30/f",
    " lead/trail ",
    "k=__DEFAULT_PARTITION__/bucket-0/data-1.orc",
    ".hidden/.file",
]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "local":
            return open_store(str(tmp_path / "ware house" / "db%20x.db" / "t"))
        case "memory":
            return MemoryFiles()
        case _:
            server: S3Server = request.getfixturevalue("s3")
            return open_store(f"{server.new_bucket()}/ware house/db%20x.db/t", server.options)


def test_what_is_written_is_read(store: Store):
    store.write("manifest/m-1", b"one")
    assert store.read("manifest/m-1") == b"one"
    assert store.exists("manifest/m-1")
    store.write("manifest/m-1", b"two, longer")
    assert store.read("manifest/m-1") == b"two, longer"
    store.write("empty", b"")
    assert store.read("empty") == b""


def test_a_missing_file_is_named(store: Store):
    with pytest.raises(NoSuchFile, match="manifest/none") as caught:
        store.read("manifest/none")
    assert store.root in str(caught.value) or "t/manifest/none" in str(caught.value)
    with pytest.raises(NoSuchFile, match="none"):
        store.open("none")
    assert not store.exists("none")
    assert isinstance(caught.value, StoreError)


def test_a_folder_is_no_file(store: Store):
    store.write("a/b/c", b"x")
    assert not store.exists("a/b")
    with pytest.raises(NoSuchFile):
        store.read("a/b")
    with pytest.raises(NoSuchFile):
        store.open("a/b")
    with pytest.raises(NoSuchFile):
        store.read("a/b/c/d")
    assert not store.exists("a/b/c/d")


def test_several_keeps_order_and_lets_few_results_wait():
    store, begun = MemoryFiles(), []

    def work(item: int) -> int:
        begun.append(item)
        return -item

    made = store.several(work, iter(range(1000)), 4)
    assert next(made) == 0
    assert len(begun) <= 2 * 4 + 1
    assert list(made) == [-item for item in range(1, 1000)]
    assert list(store.several(work, [], 4)) == []
    with pytest.raises(ZeroDivisionError):
        list(store.several(lambda item: 1 // item, [1, 0, 1], 4))


def test_ranges_are_fetched_together_once_and_not_what_is_there():
    data, asked = bytes(range(256)) * (1 << 14), []

    def fetch(starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        asked.append(list(zip(starts, ends, strict=True)))
        return [data[start:end] for start, end in asked[-1]]

    file = Ranges("f", len(data), fetch, data[-1000:])

    def read(start: int, end: int) -> None:
        file.seek(start)
        assert file.read(end - start) == data[start:end]

    read(len(data) - 1000, len(data))
    assert asked == []
    file.prefetch([(5000, 9000), (100, 200), (len(data) - 10, len(data)), (100, 200), (7, 7)])
    assert asked == [[(100, 200), (5000, 9000)]]
    for span in ((100, 200), (6000, 7000), (8999, 9000), (len(data) - 1, len(data))):
        read(*span)
    assert len(asked) == 1
    read(150, 300)
    read(300, 1 << 20)
    assert asked[1:] == [[(150, 150 + (1 << 20))]]
    file.seek(0)
    assert file.read() == data
    target = bytearray(300)
    file.seek(-200, 2)
    assert file.readinto(target) == 200
    assert target[:200] == data[-200:]
    assert file.read(5) == b""


def test_read_many_keeps_order_and_says_what_is_missing(store: Store):
    for i in range(0, 100, 2):
        store.write(f"m/{i}", str(i).encode())
    expected = [str(i).encode() if i % 2 == 0 else None for i in range(100)]
    assert list(store.read_many([f"m/{i}" for i in range(100)])) == expected
    assert list(store.read_many([f"m/{i}" for i in range(3)])) == expected[:3]
    assert list(store.read_many([])) == []


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_awkward_names_stay_as_they_are(store: Store, name: str):
    store.write(name, name.encode())
    assert store.read(name) == name.encode()
    assert [listed.path for listed in store.list("")] == [name]
    folder = name.rpartition("/")[0]
    assert [listed.path for listed in store.list(folder)] == [name]
    assert store.folders("") == [folder.split("/")[0]]
    assert store.read(store.location(name)) == name.encode()
    assert not store.create(name, b"other")
    with store.open(name) as file:
        assert file.read() == name.encode()
    with store.create_stream(f"{folder}/stream of {name.rpartition('/')[2]}") as stream:
        stream.write(b"s")
    assert len(store.list(folder)) == 2
    store.delete([name])
    assert not store.exists(name)


def test_list_is_deep_sorted_and_sized(store: Store):
    for name in ("b/x", "a/2", "a/1", "a/b/c", "ab/1", "top"):
        store.write(name, b"x" * len(name))
    everything = store.list("")
    assert [listed.path for listed in everything] == ["a/1", "a/2", "a/b/c", "ab/1", "b/x", "top"]
    assert all(listed.size_bytes == len(listed.path) for listed in everything)
    assert all(listed.modified_ms > 1_600_000_000_000 for listed in everything)
    assert [listed.path for listed in store.list("a")] == ["a/1", "a/2", "a/b/c"]
    assert store.list("a/") == store.list("a")
    assert store.list("none") == []
    assert store.list("top") == []


def test_folders_are_those_directly_inside(store: Store):
    for name in ("dt=2/bucket-0/f", "dt=1/bucket-0/f", "dt=1/bucket-1/f", "snapshot/LATEST", "file"):
        store.write(name, b"x")
    assert store.folders("") == ["dt=1", "dt=2", "snapshot"]
    assert store.folders("dt=1") == ["bucket-0", "bucket-1"]
    assert store.folders("dt=1/bucket-0") == []
    assert store.folders("none") == []


def test_names_are_those_of_files_directly_inside(store: Store):
    for name in ("snapshot/snapshot-10", "snapshot/snapshot-9", "snapshot/LATEST", "snapshot/deeper/f", "top"):
        store.write(name, b"x")
    assert store.names("snapshot") == ["LATEST", "snapshot-10", "snapshot-9"]
    assert store.names("") == ["top"]
    assert store.names("none") == []
    assert store.names("top") == []


def test_create_makes_a_file_once(store: Store):
    assert store.create("snapshot/snapshot-1", b"mine") is True
    assert store.create("snapshot/snapshot-1", b"yours") is False
    assert store.read("snapshot/snapshot-1") == b"mine"
    store.delete(["snapshot/snapshot-1"])
    assert store.create("snapshot/snapshot-1", b"yours") is True
    assert [listed.path for listed in store.list("")] == ["snapshot/snapshot-1"]


def test_of_racing_threads_one_creates(store: Store):
    size = 200_000
    for turn in range(20):
        start = threading.Barrier(8)

        def race(i: int, turn: int = turn, start: threading.Barrier = start) -> bool:
            start.wait()
            return store.create(f"snapshot/snapshot-{turn}", bytes([i]) * size)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))
        assert sum(won) == 1, (turn, won)
        assert store.read(f"snapshot/snapshot-{turn}") == bytes([won.index(True)]) * size


def test_of_racing_processes_one_creates(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server):
    context = multiprocessing.get_context("spawn")
    stores = [open_store(str(tmp_path)), open_store(f"{s3.new_bucket()}/t", s3.options)]
    with ProcessPoolExecutor(8, mp_context=context) as pool:
        for opened in stores:
            answers = list(pool.map(create_all, [(opened, i, 25) for i in range(8)]))
            for turn, won in enumerate(zip(*answers, strict=True)):
                assert sum(won) == 1, (opened.root, turn, won)
                assert opened.read(f"race/{turn}") == bytes([won.index(True)]) * 5000


def test_readers_see_a_file_whole_or_not_at_all(store: Store):
    size, sizes, done = 300_000, set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            sizes.update(len(found) for found in store.read_many(["hint"]) if found is not None)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for i in range(30):
            store.write("hint", bytes([i]) * size)
    finally:
        done.set()
        reader.join()
    assert sizes <= {size}


def test_open_gives_random_access(store: Store):
    content = bytes(range(256)) * 20_000
    store.write("data", content)
    with store.open("data") as file:
        assert file.seekable()
        assert file.readable()
        assert file.read(10) == content[:10]
        assert file.tell() == 10
        file.seek(-5, io.SEEK_END)
        assert file.read() == content[-5:]
        assert file.read() == b""
        file.seek(1_000_000)
        assert file.read(2_000_000) == content[1_000_000:3_000_000]
        file.seek(len(content) + 10)
        assert file.read(1) == b""
    assert file.closed


def test_pyarrow_reads_and_writes_through_the_streams(store: Store):
    table = pa.table({"a": pa.array(range(300_000)), "b": [str(i) for i in range(300_000)]})
    with (
        store.create_stream("k=a b/data-1.parquet") as sink,
        pq.ParquetWriter(sink, table.schema) as writer,
    ):
        writer.write_table(table, row_group_size=50_000)
    with store.open("k=a b/data-1.parquet") as file:
        assert pq.ParquetFile(file).read().equals(table)
    with store.open("k=a b/data-1.parquet") as file:
        assert pq.ParquetFile(file).read_row_group(3, ["b"]).equals(table.select(["b"]).slice(150_000, 50_000))


def test_a_stream_appears_when_it_is_closed(store: Store):
    stream = store.create_stream("dt=1/data")
    assert stream.writable()
    assert not stream.seekable()
    stream.write(b"one")
    stream.write(memoryview(b"two"))
    stream.flush()
    assert stream.tell() == 6
    assert not store.exists("dt=1/data")
    stream.close()
    stream.close()
    assert stream.closed
    assert store.read("dt=1/data") == b"onetwo"
    assert [listed.path for listed in store.list("")] == ["dt=1/data"]
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"x")


@pytest.mark.parametrize("size", [3, 30_000_000])
def test_a_stream_left_by_an_exception_leaves_nothing(store: Store, size: int):
    def work() -> None:
        with store.create_stream("dt=1/data") as stream:
            stream.write(b"x" * size)
            raise KeyError("the worker failed")

    with pytest.raises(KeyError):
        work()
    assert store.list("") == []
    assert not store.exists("dt=1/data")


@pytest.mark.parametrize(
    ("error", "raised"),
    [(StoreRefused("no"), StoreRefused), (OSError("no"), StoreError), (KeyboardInterrupt("no"), KeyboardInterrupt)],
    ids=["refused", "failed", "interrupted"],
)
def test_a_stream_that_cannot_be_finished_is_abandoned_and_says_why(error: BaseException, raised: type[BaseException]):
    """A refusal stays one: it is not tried again, and its outcome is known."""
    abandoned = []

    def publish() -> None:
        raise error

    stream = NewFile("a file", lambda data: None, publish, lambda: abandoned.append(1))
    with pytest.raises(raised, match="no") as caught:
        stream.close()
    assert (type(caught.value), stream.closed, abandoned) == (raised, True, [1])


def test_a_stream_that_is_dropped_is_never_published(store: Store):
    stream = store.create_stream("data")
    stream.write(b"half")
    del stream
    assert not store.exists("data")


def test_delete_takes_what_is_there(store: Store):
    for i in range(5):
        store.write(f"d/{i}", b"x")
    store.delete(["d/0", "none", "d/1", "d/none/x"])
    assert [listed.path for listed in store.list("")] == ["d/2", "d/3", "d/4"]
    store.delete([])
    store.delete(f"d/{i}" for i in range(2000))
    assert store.list("") == []


def test_empty_folders_go_and_others_stay(store: Store):
    for name in ("dt=1/h=1/bucket-0/f", "dt=1/h=2/bucket-0/f", "dt=2/bucket-0/f"):
        store.write(name, b"x")
    store.delete(["dt=1/h=1/bucket-0/f", "dt=2/bucket-0/f"])
    store.remove_empty_folders(["dt=1/h=1/bucket-0", "dt=2/bucket-0", "dt=9/none"])
    assert store.folders("") == ["dt=1"]
    assert store.folders("dt=1") == ["h=2"]
    store.delete(["dt=1/h=2/bucket-0/f"])
    store.remove_empty_folders(["dt=1/h=2/bucket-0"])
    assert store.list("") == []
    store.write("dt=1/f", b"again")
    assert store.read("dt=1/f") == b"again"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/./b", "a//b", "a\0b", "..", "./x"])
def test_a_name_never_leaves_the_root(store: Store, name: str):
    for attempt in (
        lambda: store.read(name),
        lambda: list(store.read_many([name])),
        lambda: store.write(name, b"x"),
        lambda: store.create(name, b"x"),
        lambda: store.create_stream(name),
        lambda: store.delete([name]),
        lambda: store.list(name),
        lambda: store.open(name),
        lambda: store.remove_empty_folders([name]),
    ):
        with pytest.raises(InvalidInput, match="not allowed"):
            attempt()
    if ".." in name:
        with pytest.raises(InvalidInput, match="not allowed"):
            store.read(f"{store.root}/{name}")


@pytest.mark.parametrize("outside", ["/etc/hosts", "s3://elsewhere/x", "file:///etc/hosts"])
def test_nothing_is_changed_outside_the_root(store: Store, outside: str):
    for attempt in (
        lambda: store.write(outside, b"x"),
        lambda: store.create(outside, b"x"),
        lambda: store.create_stream(outside),
        lambda: store.delete([outside]),
        lambda: store.list(outside),
        lambda: store.remove_empty_folders([outside]),
    ):
        with pytest.raises(InvalidInput, match="is not in"):
            attempt()


def test_the_root_is_no_file(store: Store):
    for attempt in (lambda: store.read(""), lambda: store.write("", b"x"), lambda: store.delete([store.root])):
        with pytest.raises(InvalidInput, match="the root"):
            attempt()
    assert not store.list("")


def test_absolute_names_inside_the_root_are_the_same_files(store: Store):
    store.write("data/f", b"x")
    uri = store.location("data/f")
    assert uri == f"{store.root}/data/f"
    assert store.location(uri) == uri
    assert store.location("") == store.root
    assert store.read(uri) == b"x"
    assert store.exists(uri)
    with store.open(uri) as file:
        assert file.read() == b"x"
    store.write(uri, b"y")
    assert store.read("data/f") == b"y"
    store.delete([uri])
    assert not store.exists("data/f")


def test_absolute_names_elsewhere_can_be_read(tmp_path: Path, s3: S3Server):
    bucket = s3.new_bucket()
    stores = [
        open_store(str(tmp_path / "one")),
        open_store((tmp_path / "two").as_uri()),
        open_store(f"{bucket}/one", s3.options),
        open_store(f"{s3.new_bucket()}/two", s3.options),
    ]
    for i, opened in enumerate(stores):
        opened.write("dir x/f", b"%d" % i)
    for reader in stores:
        for i, opened in enumerate(stores):
            if reader.root.startswith("file:") and opened.root.startswith("s3:"):
                continue  # Credentials would come from the environment.
            uri = opened.location("dir x/f")
            assert reader.read(uri) == b"%d" % i
            assert list(reader.read_many([uri, uri + "x"])) == [b"%d" % i, None]
            assert reader.exists(uri)
            assert reader.location(uri) == uri
            with reader.open(uri) as file:
                assert file.read() == b"%d" % i
    assert stores[2].read(stores[3].location("dir x/f").replace("s3://", "s3a://")) == b"3"


def test_stores_travel_to_other_processes(tmp_path: Path, s3: S3Server):
    for opened in (open_store(str(tmp_path)), open_store(f"{s3.new_bucket()}/t", s3.options)):
        opened.write("f", b"x")
        again = pickle.loads(pickle.dumps(opened))
        assert again == opened
        assert again.read("f") == b"x"


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE://localhost{}", "{}/", "file:{}//"])
def test_a_local_root_has_many_spellings(tmp_path: Path, form: str):
    found = open_store(form.format(f"{tmp_path}/a b"))
    assert found.root == f"file://{tmp_path}/a b"
    found.write("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    assert found.read(f"{form.format(f'{tmp_path}/a b')}//x") == b"1"


def test_a_relative_root_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = open_store("ware:house/x")
    assert found.root == f"file://{tmp_path}/ware:house/x"
    assert open_store(".").root == f"file://{tmp_path}"
    monkeypatch.chdir("/")
    found.write("f", b"1")
    assert (tmp_path / "ware:house/x/f").exists()


@pytest.mark.parametrize(
    ("uri", "options", "says"),
    [
        ("ftp://name/x", {}, "ftp"),
        ("file://host/x", {}, "host"),
        ("", {}, "names no folder"),
        ("s3:///x", {}, "no bucket"),
        ("s3:/x", {}, "no bucket"),
        ("s3://b/a/../c", {}, "not allowed"),
        ("/tmp", {"fsnyc": "true"}, "fsnyc"),
        ("/tmp", {"fsync": "yes"}, "yes"),
    ],
)
def test_a_wrong_root_is_refused_at_once(uri: str, options: dict[str, str], says: str):
    with pytest.raises(InvalidInput, match=says):
        open_store(uri, options)


def test_the_whole_file_system_can_be_the_root(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"x")
    found = open_store("/")
    assert found.read(f"{tmp_path}/f".lstrip("/")) == b"x"
    assert found.read(f"{tmp_path}/f") == b"x"
    assert found.location(f"{tmp_path}/f") == f"file://{tmp_path}/f"
    assert found.list(str(tmp_path).lstrip("/"))[0].path == f"{tmp_path}/f".lstrip("/")


def test_local_failures_are_store_errors(tmp_path: Path):
    found = open_store(str(tmp_path))
    found.write("file", b"x")
    for attempt in (
        lambda: found.write("file/below", b"x"),
        lambda: found.create("file/below", b"x"),
        lambda: found.create_stream("file/below"),
        lambda: found.write("n" * 300 + "/x", b"x"),
        lambda: found.exists("n" * 300),
    ):
        with pytest.raises(StoreError, match="cannot") as caught:
            attempt()
        assert caught.value.__cause__ is not None
    found.write("folder/f", b"x")
    with pytest.raises(StoreError, match="cannot delete"):
        found.delete(["folder", "file"])
    assert not found.exists("file"), "what can be deleted is, also after a failure"
    assert {p.name for p in tmp_path.rglob("*")} == {"folder", "f"}


def test_a_write_that_does_not_fit_is_a_store_error_and_leaves_nothing(tmp_path: Path):
    found = open_store(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        for attempt in (
            lambda: found.write("f", b"x" * 20_000),
            lambda: found.create("f", b"x" * 20_000),
            lambda: fill(found),
        ):
            with pytest.raises(StoreError, match="File too large"):
                attempt()
            assert list(tmp_path.iterdir()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(store: Store) -> None:
    with store.create_stream("f") as stream:
        stream.write(b"x" * 3_000_000)


def test_local_files_obey_the_umask_and_survive_removed_folders(tmp_path: Path):
    found = open_store(str(tmp_path))
    before = os.umask(0o027)
    try:
        found.write("a", b"x")
        found.create("b", b"x")
        found.create_stream("c").close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"] == [0o640] * 3
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            found.remove_empty_folders(["p/q/r"])
            time.sleep(0.001)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for i in range(200):
            found.write(f"p/q/r/{i}", b"x")
            found.delete([f"p/q/r/{i}"])
    finally:
        done.set()
        remover.join()


def test_links_to_folders_are_not_followed_by_lists(tmp_path: Path):
    found = open_store(str(tmp_path / "t"))
    found.write("a/f", b"x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "g").write_bytes(b"x")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "t" / "loop").symlink_to(tmp_path / "t")
    assert [listed.path for listed in found.list("")] == ["a/f"]


def test_fsync_can_be_turned_off(tmp_path: Path):
    found = open_store(str(tmp_path), {"fsync": "False"})
    assert isinstance(found, LocalFiles)
    assert not found.fsync
    found.write("a/b", b"x")
    assert found.create("a/c", b"x")
    assert [listed.path for listed in found.list("")] == ["a/b", "a/c"]


def test_memory_can_age_its_files():
    now = [1000]
    found = MemoryFiles(now_ms=lambda: now[0])
    found.write("a", b"x")
    now[0] = 2000
    found.create("b", b"x")
    assert [listed.modified_ms for listed in found.list("")] == [1000, 2000]


class Calls:
    """While in a `with`: every call of `os.<names>` in this thread, as (name, the variables of its caller), before it is made."""

    def __init__(self, *names: str) -> None:
        self._functions = {getattr(os, name): name for name in names}
        self.made: list[tuple[str, dict[str, Any]]] = []

    def before(self, name: str, variables: dict[str, Any]) -> None:
        self.made.append((name, dict(variables)))

    def __enter__(self) -> "Calls":
        def look(frame: Any, event: str, function: Any) -> None:
            if event == "c_call" and function in self._functions:
                self.before(self._functions[function], frame.f_locals)

        sys.setprofile(look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


class Synced(Calls):
    """What was synced, by inode, and when a file got its name."""

    def __init__(self) -> None:
        super().__init__("fsync", "link", "replace")
        self.order: list[int | str] = []

    def before(self, name: str, variables: dict[str, Any]) -> None:
        self.order.append(os.fstat(variables["descriptor"]).st_ino if name == "fsync" else name)


def write_streamed(store: Store, path: str) -> None:
    with store.create_stream(path) as stream:
        stream.write(b"x")


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda store: store.write("new/deep/f", b"x"), "replace"),
        (lambda store: store.create("new/deep/f", b"x"), "link"),
        (lambda store: write_streamed(store, "new/deep/f"), "replace"),
    ],
    ids=["write", "create", "stream"],
)
def test_a_file_and_its_folders_are_synced_before_the_call_returns(tmp_path: Path, write: Any, names: str):
    """A power cut after the call loses neither the rows, nor the name, nor a folder that was made for it."""
    (tmp_path / "t").mkdir()
    with Synced() as synced:
        write(open_store(str(tmp_path / "t")))
    top, new, deep = (os.stat(tmp_path / name).st_ino for name in ("t", "t/new", "t/new/deep"))
    file = os.stat(tmp_path / "t/new/deep/f").st_ino
    named = synced.order.index(names)
    assert {top, new} <= set(synced.order[:named]), "the folders that were made"
    assert file in synced.order[:named], "the content, before it has its name"
    assert deep in synced.order[named:], "the name"
    with Synced() as synced:
        write(open_store(str(tmp_path / "u"), {"fsync": "false"}))
    assert synced.order == [names], "unless that is turned off"


def test_files_written_together_share_the_sync_of_their_folder_and_hints_are_not_synced(tmp_path: Path):
    store = open_store(str(tmp_path))
    store.write("m/first", b"x")
    with Synced() as synced:
        store.write_many({f"m/{i}": b"x" for i in range(3)})
    folder = os.stat(tmp_path / "m").st_ino
    assert [call for call in synced.order if call != "replace"][-1] == folder
    assert synced.order.count(folder) == 1
    assert len([call for call in synced.order if call != "replace"]) == 4
    with Synced() as synced:
        store.write_hints({"m/LATEST": b"1"})
    assert synced.order == ["replace"]
    assert store.read("m/LATEST") == b"1"


def test_an_append_takes_eight_syncs(tmp_path: Path):
    table = Lake(tmp_path).create_table("a.t", pa.schema({"id": pa.int64()}))
    table.append(pa.table({"id": [1]}))
    with Synced() as synced:
        table.append(pa.table({"id": [2]}))
    assert len([call for call in synced.order if isinstance(call, int)]) == 8, synced.order


class Repeated(Calls):
    """A network file system: the answer to a link that was made is lost, and the kernel asks again."""

    def before(self, name: str, variables: dict[str, Any]) -> None:
        sys.setprofile(None)
        os.link(variables["hidden"], variables["name"])


def test_a_link_whose_answer_was_lost_has_not_lost_the_race(tmp_path: Path):
    store = open_store(str(tmp_path), {"fsync": "false"})
    with Repeated("link"):
        assert store.create("f", b"ours")
    assert store.read("f") == b"ours"
    assert not store.create("f", b"theirs")
    assert store.names("") == ["f"]


def test_a_cache_keeps_what_was_undamaged_within_its_limit():
    cache = Cache(20_000)
    for file in range(100):
        cache.put_undamaged((str(file), 1), ["a"])
        cache.put_undamaged((str(file), 1), ["b"])
    assert cache.undamaged(("99", 1)) == {"a", "b"}
    assert cache.undamaged(("99", 2)) == cache.undamaged(("0", 1)) == frozenset()
    assert sum(bool(cache.undamaged((str(file), 1))) for file in range(100)) == 20_000 // 1026


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
def test_a_place_where_nothing_can_be_written_is_named_and_the_outcome_known(tmp_path, format):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "w", "/proc/nowhere"):
        with pytest.raises(StoreRefused, match=f"{folder}/d.db/t/.*folder") as raised:
            Lake(folder).create_table("d.t", pa.schema([("k", pa.int32())]), format=format)
        assert "may or may not" not in str(raised.value)
