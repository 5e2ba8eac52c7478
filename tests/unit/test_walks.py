"""How far a verb walks: the modules that one call passes through, and the pairs of modules that call each other.
Both are bounds that go down, but for what a verb newly does (MERGE assigns fields of structs): whoever lowers one,
lowers the number here."""

import re
import sys
import threading

import pyarrow as pa
import pytest

from lakeformat import Lake

ROWS = pa.table({"id": [1, 2, 3], "dt": ["a", "a", "b"], "v": [1, 2, 3]})


def overwrite(table):
    table.overwrite_partitions(ROWS)


def merge(table):
    table.merge_into(ROWS, "t.id = s.id").when_matched().update_all().when_not_matched().insert_all().merge()


def delete(table):
    table.delete("id = 2")


def scan(table):
    table.scan(where="dt = 'a'", columns=["v"]).to_arrow()


def expiry(table):
    table.expire_snapshots(retain_last=1)


# `==` and `hash` of any noun, attributes that are table options or parts of a view, the time of day, the latest result
# of a function, and the log, which is heard only where another test of the process raised its level.
_NAMES = ("model.dataclass", "model.option", "dialects.part", "clock", "codec.latest", "model.log")
NO_STEPS = {f"lakeformat.{name}" for name in _NAMES}
BOUNDS = {overwrite: (56, 3), merge: (68, 7), delete: (61, 2), scan: (42, 0), expiry: (27, 0)}  # (modules, pairs)


def step(frame):
    """The module of a frame. Three count as one each: the metadata of a format, a folder with a file a noun; the local
    store with its streams, threads and errors; and the worker with its threads."""
    module = re.sub(r"(\.metadata)\.\w+$", r"\1", frame.f_globals.get("__name__", ""))
    module = re.sub(r"engines\.ahead$", "engines.worker", module)
    return re.sub(r"storage\.(failures|several|streams)$", "storage.local", module)


class Walk:
    """Who calls whom among our modules, in every thread."""

    def __init__(self):
        self.calls = set()

    def __enter__(self):
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def _seen(self, frame, event, _):
        if event == "call" and frame.f_back is not None:
            of, by = step(frame), step(frame.f_back)
            if of.startswith("lakeformat") and of not in NO_STEPS:
                is_step = by.startswith("lakeformat") and by not in NO_STEPS
                self.calls.add((by if is_step else of, of))

    @property
    def modules(self):
        return {name for call in self.calls for name in call}

    @property
    def mutual(self):
        return {tuple(sorted(call)) for call in self.calls if call[0] != call[1] and call[::-1] in self.calls}


@pytest.mark.parametrize("format", ["paimon", "iceberg"])
@pytest.mark.parametrize("verb", BOUNDS, ids=lambda verb: verb.__name__)
def test_a_verb_walks_through_few_modules(tmp_path, format, verb):
    for name in ("d.imports_everything_once", "d.t"):
        table = Lake(str(tmp_path)).create_table(name, ROWS.schema, format=format, partition_by=["dt"])
        table.append(ROWS)
        table.append(ROWS)
        with Walk() as walk:
            verb(table)
    modules, mutual = BOUNDS[verb]
    assert len(walk.modules) <= modules, " ".join(sorted(walk.modules))
    assert len(walk.mutual) <= mutual, " ".join(map(str, sorted(walk.mutual)))
