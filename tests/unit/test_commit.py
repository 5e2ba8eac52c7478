"""The commit loop, told case by case; `tests/simulation` proves it over all of them at once."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import Lake, errors
from lakeformat.commit import commit, discard, pause
from lakeformat.errors import (
    CommitLost,
    CommitUnknown,
    Conflict,
    CorruptTable,
    InvalidInput,
    NoSuchFile,
    StoreError,
    StoreRefused,
)
from lakeformat.model.operation import Append, Operation, Request, Rewrite
from lakeformat.model.snapshot import Outcome, Plan, Snapshot, Stamp
from lakeformat.model.work import WrittenFile
from lakeformat.storage.memory import MemoryFiles
from tests import doors
from tests.simulation import toy
from tests.simulation.racing import Instead


def append(id: str = "op") -> Append:
    return Append(request=Request(id=id), added=(WrittenFile(f"data/{id}", (), 1, 1),))


@dataclass
class Case:
    """A table, a head that gives the answers of the test, and a clock that nobody waits for."""

    store: MemoryFiles = field(default_factory=MemoryFiles)
    answers: list[Callable[[int, Plan], Outcome]] = field(default_factory=list)  # Then the real head's.
    slept: list[float] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    seen: Any = None  # The store as commit gets it, if that is another one.
    dialect: Any = toy

    def version(self) -> int:
        return toy.head(self.store).version()

    def advance(self, version: int, plan: Plan) -> Outcome:
        answer = self.answers.pop(0) if self.answers else self.publish
        return answer(version, plan)

    def publish(self, version: int, plan: Plan) -> Outcome:
        return toy.head(self.store).advance(version, plan)

    def publish_unheard(self, version: int, plan: Plan) -> Outcome:
        assert self.publish(version, plan) is Outcome.PUBLISHED
        raise StoreError("the answer is lost")

    def never_arrive(self, version: int, plan: Plan) -> Outcome:
        raise StoreError("no answer")

    def lose(self, version: int, plan: Plan | None) -> Outcome:
        """Somebody else is faster."""
        self.store.write(f"manifest/other-{version}", b"[]")
        root = b'{"id": "other-%d", "kind": "Append", "manifest": "manifest/other-%d"}' % (version, version)
        self.store.write(f"snapshot/snapshot-{version + 1}", root)
        return Outcome.LOST

    def stamp(self, attempt: int) -> Stamp:
        self.stamps.append(attempt)
        return Stamp(0, f"{len(self.stamps)}", attempt)

    def commit(self, operation: Operation, attempts: int = 3) -> Snapshot:
        for path in (file.path for file in getattr(operation, "added", ())):
            self.store.write(path, b"x")
        ticks = iter(range(3, 100))
        return commit(
            self.seen or self.store, self, self.dialect, operation, attempts,
            stamp=self.stamp, sleep=self.slept.append, jitter=lambda: 0.5, clock=lambda: next(ticks) * 2.5,
        )  # fmt: skip

    def manifests(self) -> list[str]:
        return [file.path for file in self.store.list("manifest")]


@dataclass
class Failing:
    """A store whose n-th call from now on fails, or all from it on."""

    store: MemoryFiles
    calls: dict[str, range]
    made: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.made[name] = self.made.get(name, 0) + 1
            if self.made[name] in self.calls.get(name, ()):
                raise StoreError(f"{name}: no answer")
            return getattr(self.store, name)(*arguments)

        return call if callable(getattr(self.store, name)) else getattr(self.store, name)


def test_a_commit_says_what_it_took(caplog: pytest.LogCaptureFixture):
    case = Case()
    with caplog.at_level(logging.INFO, logger="lakeformat"):
        made = case.commit(append())
    assert (made.id, made.operation_id, made.attempts, made.milliseconds) == (1, "op", 1, 2500)
    assert case.slept == []
    assert [r.getMessage() for r in caplog.records if "snapshot 1" in r.getMessage()], "one line says so"
    assert len(caplog.records) == 1


def test_a_lost_race_is_run_again_on_the_new_base():
    case = Case()
    case.answers = [case.lose, case.lose]
    made = case.commit(append())
    assert (made.id, made.attempts) == (3, 3)
    assert case.manifests() == ["manifest/manifest-3", "manifest/other-0", "manifest/other-1"], (
        "losers leave no metadata"
    )
    assert toy.load(case.store, 3).files == ("data/op",)
    assert case.slept == pytest.approx([0.011, 0.022])
    assert case.stamps == [0, 1, 2]


def test_all_races_lost_is_said_and_cleaned_up():
    case = Case()
    case.answers = [case.lose] * 3
    with pytest.raises(CommitLost, match="3 attempts"):
        case.commit(append())
    assert not case.store.exists("data/op")
    assert case.manifests() == [f"manifest/other-{i}" for i in range(3)]


def test_an_attempt_that_landed_unheard_is_found():
    case = Case()
    case.answers = [case.publish_unheard]
    made = case.commit(append())
    assert (made.id, made.attempts) == (1, 2)
    assert case.version() == 1


def test_the_last_unknown_is_said_with_its_cause_and_nothing_is_deleted():
    case = Case()
    case.answers = [case.never_arrive]
    with pytest.raises(CommitUnknown, match=r"no answer\. Run it again with id='op'") as caught:
        case.commit(append(), attempts=1)
    assert isinstance(caught.value.__cause__, StoreError)
    assert case.store.exists("data/op")
    assert case.manifests() == ["manifest/manifest-1"]
    assert case.commit(append(), attempts=1).id == 1
    assert case.version() == 1


def test_a_last_attempt_that_landed_unheard_is_found():
    case = Case()
    case.answers = [case.publish_unheard]
    assert case.commit(append(), attempts=1).id == 1
    assert case.store.exists("data/op")


def test_what_storage_refuses_for_good_is_said_at_once():
    case = Case()

    def refuse(version: int, plan: Plan) -> Outcome:
        raise StoreRefused("501 Not Implemented")

    case.answers = [refuse]
    with pytest.raises(StoreRefused, match="501"):
        case.commit(append())
    assert case.slept == []
    assert case.store.exists("data/op"), "left to the sweep"
    case.answers = [case.never_arrive, refuse]
    with pytest.raises(CommitUnknown, match="501"):  # The first attempt may still land.
        case.commit(append())


def test_an_unclear_answer_is_settled_by_history():
    """A conflict that a server reports may be with the attempt itself, which something on the way has repeated."""
    case = Case()
    case.answers = [lambda version, plan: (case.publish(version, plan), Outcome.UNKNOWN)[1]]
    made = case.commit(append())
    assert (made.id, made.attempts) == (1, 2)
    assert case.store.exists("manifest/manifest-1")
    case.answers = [lambda version, plan: (case.lose(version, plan), Outcome.UNKNOWN)[1]]
    made = case.commit(append("second"))
    assert (made.id, made.attempts) == (3, 2)
    assert case.manifests() == ["manifest/manifest-1", "manifest/manifest-3", "manifest/other-1"], (
        "what lost is removed"
    )


def test_a_history_that_was_cut_leaves_an_attempt_in_doubt():
    case = Case(dialect=Instead(toy, settle=lambda *arguments: Outcome.UNKNOWN))

    def unheard(version: int, plan: Plan) -> Outcome:
        case.lose(version, plan)
        return Outcome.UNKNOWN

    case.answers = [unheard]
    with pytest.raises(CommitUnknown, match="expired"):
        case.commit(append())
    assert case.store.exists("data/op")
    assert case.slept == pytest.approx([0.011]), "a further attempt could apply it twice"


def test_a_race_lost_to_an_own_late_attempt_is_found():
    case = Case()

    def land_late(version: int, plan: Plan) -> Outcome:
        case.answers[0] = lambda _, later: (case.publish(version, plan), Outcome.LOST)[1]
        return Outcome.UNKNOWN

    case.answers = [land_late, case.publish]
    made = case.commit(append(), attempts=2)
    assert made.id == 1
    assert case.store.exists("data/op")
    assert toy.load(case.store, 1).files == ("data/op",)


def test_a_race_lost_to_the_same_operation_of_another_caller_is_found():
    case = Case()

    def asked_twice(version: int, plan: Plan) -> Outcome:
        root = plan.root.replace(b"manifest-2", b"manifest-twin")
        case.store.write("manifest/manifest-twin", plan.files["manifest/manifest-2"])
        assert case.publish(version, replace(plan, root=root)) is Outcome.PUBLISHED
        return Outcome.LOST

    case.answers = [case.lose, asked_twice]
    made = case.commit(append(), attempts=2)
    assert (made.id, made.attempts) == (2, 2)
    assert case.store.exists("data/op")


def test_attempts_that_history_rules_out_are_in_doubt_no_more():
    case = Case(dialect=Instead(toy, check=lambda view, operation: refuse_after(view.version)))

    def refuse_after(version: int) -> None:
        if version:
            raise Conflict("others moved on")

    def lose_unheard(version: int, plan: Plan) -> Outcome:
        case.lose(version, plan)
        raise StoreError("no answer")

    case.answers = [case.never_arrive, lose_unheard]
    with pytest.raises(Conflict, match="moved on"):  # Neither of the two can be part of the table.
        case.commit(append())
    assert not case.store.exists("data/op")


@pytest.mark.parametrize("answers", [True, False])
def test_files_of_an_attempt_without_an_answer_stay_for_it_may_land_yet(answers: bool):
    case = Case()

    def lose(version: int, plan: Plan) -> Outcome:
        case.lose(version, plan)
        if answers:
            return Outcome.UNKNOWN
        raise StoreError("no answer")

    case.answers = [lose]
    case.commit(append())
    assert case.store.exists("manifest/manifest-1") is not answers


def test_history_decides_on_an_attempt_that_no_search_by_id_finds():
    case = Case(dialect=Instead(toy, find=lambda *arguments: None))
    case.answers = [case.publish_unheard]
    made = case.commit(append())
    assert (made.id, made.attempts, case.version()) == (1, 2, 1)


def test_the_root_of_an_attempt_that_newer_versions_hide_is_removed():
    case = Case(dialect=Instead(toy, settle=lambda *arguments: Outcome.LOST, find=lambda *arguments: None))

    def hidden(version: int, plan: Plan) -> Outcome:
        case.publish(version, plan)
        case.lose(version + 1, plan)
        return Outcome.UNKNOWN

    case.answers = [hidden]
    assert case.commit(append()).id == 3
    assert not case.store.exists("snapshot/snapshot-1")


def test_what_a_plan_leaves_unused_is_deleted_once_it_is_published():
    case = Case(dialect=Instead(toy, plan=lambda view, *how: replace(view.plan(*how), unused=("data/unused",))))
    case.store.write("data/unused", b"x")
    case.answers = [case.lose]
    case.commit(append())
    assert not case.store.exists("data/unused")
    assert case.store.exists("data/op")


def test_asking_again_returns_the_same_snapshot():
    case = Case()
    first = case.commit(append())
    case.commit(append("other"))
    again = case.commit(append())
    assert again.id == first.id
    assert case.version() == 2


def test_a_conflict_discards_what_was_written():
    case = Case()
    case.commit(append("a"))
    operation = Rewrite(request=Request(id="op"), removed=("data/gone",), added=(WrittenFile("data/op", (), 1, 1),))
    with pytest.raises(Conflict):
        case.commit(operation)
    assert not case.store.exists("data/op")
    assert case.store.exists("data/a")
    assert case.version() == 1


def test_what_no_longer_fits_after_others_changed_the_table_discards_what_was_written():
    case = Case()

    def check(view: Any, operation: Operation) -> None:
        raise InvalidInput("the number of buckets has changed")

    case.dialect = Instead(toy, check=check)
    with pytest.raises(InvalidInput, match="buckets"):
        case.commit(append())
    assert not case.store.exists("data/op")


def test_what_no_longer_fits_while_an_attempt_may_land_yet_discards_nothing():
    """The schema can change under a base whose next name is free as yet."""
    case = Case()
    checks: list[int] = []

    def check(view: Any, operation: Operation) -> None:
        checks.append(view.version)
        if len(checks) == 2:
            raise InvalidInput("the number of buckets has changed")

    case.answers, case.dialect = [case.never_arrive], Instead(toy, check=check)
    with pytest.raises(CommitUnknown, match="buckets"):
        case.commit(append())
    assert checks == [0, 0]
    assert case.store.exists("data/op")


def test_cleaning_up_never_hides_the_outcome():
    case = Case()
    case.seen = Failing(case.store, {"delete": range(1, 99)})
    case.answers = [case.lose] * 2
    with pytest.raises(CommitLost):
        case.commit(append(), attempts=2)
    assert case.store.exists("data/op"), "left to the sweep"
    discard(case.seen, ["data/op"])


@pytest.mark.parametrize("call", ["read", "write_many"])
def test_storage_that_fails_before_anything_is_published_propagates(call: str):
    case = Case()
    case.commit(append("a"))
    case.seen = Failing(case.store, {call: range(1, 99)})
    with pytest.raises(StoreError, match=call):
        case.commit(append())
    assert case.store.exists("data/op"), "whatever else fails leaves every file to the sweep"


def test_a_base_that_expires_while_it_is_looked_at_is_a_lost_race():
    case = Case()
    case.commit(append("a"))

    class Expiring(Failing):
        def read(self, path: str) -> bytes:
            if path == "manifest/manifest-1" and self.store.exists(path):
                case.lose(1, None)
                self.store.delete([path, "snapshot/snapshot-1"])
            return self.store.read(path)

    case.seen = Expiring(case.store, {})
    made = case.commit(replace(append(), request=Request(id="op", absent_until=1)))
    assert (made.id, made.attempts) == (3, 2)


def test_a_version_that_expires_while_it_is_looked_for_is_a_lost_race():
    looks: Iterator[Any] = iter([NoSuchFile("snapshot"), 0, 0, NoSuchFile("snapshot"), 0])

    class Looking(Case):
        def version(self) -> int:
            look = next(looks, None)
            if isinstance(look, Exception):
                raise look
            return super().version()

    case = Looking()
    case.answers = [lambda version, plan: Outcome.LOST]
    assert case.commit(append(), attempts=4).attempts == 4


def test_a_file_that_is_missing_from_the_current_base_raises_at_once():
    case = Case()
    case.commit(append("a"))
    case.store.delete(["manifest/manifest-1"])
    with pytest.raises(NoSuchFile, match="manifest-1"):
        case.commit(append())
    assert case.slept == []
    assert case.store.exists("data/op")


@pytest.mark.parametrize("call", ["read", "write_many"])
@pytest.mark.parametrize("lands", [True, False])
def test_storage_that_fails_after_an_unknown_outcome_is_no_answer(call: str, lands: bool):
    """The failure of a later attempt must not read as 'not landed'."""
    case = Case()
    case.commit(append("a"))
    failing = Failing(case.store, {})

    def unheard(version: int, plan: Plan) -> Outcome:
        failing.calls = {call: range(1, 99)}
        failing.made.clear()
        return (case.publish_unheard if lands else case.never_arrive)(version, plan)

    case.seen, case.answers = failing, [unheard]
    if lands and call == "write_many":
        assert case.commit(append()).id == 2, "found, so nothing needs to be written"
        return
    with pytest.raises(CommitUnknown, match=f"{call}: no answer"):
        case.commit(append())
    assert case.store.exists("data/op")
    failing.calls = {}
    assert case.commit(append()).id == 2
    assert case.version() == 2


def test_a_passing_failure_after_an_unknown_outcome_does_not_use_up_the_answer():
    case = Case()
    failing = Failing(case.store, {})

    def unheard(version: int, plan: Plan) -> Outcome:
        failing.calls = {"read": range(1, 2)}
        failing.made.clear()
        return case.publish_unheard(version, plan)

    case.seen, case.answers = failing, [unheard]
    made = case.commit(append())
    assert (made.id, made.attempts) == (1, 3)


def test_storage_that_fails_in_the_last_look_is_no_answer_either():
    case = Case()
    failing = Failing(case.store, {})

    def lose_and_break(version: int, plan: Plan) -> Outcome:
        outcome = case.lose(version, plan)
        failing.calls = {"read": range(1, 99)}
        return outcome

    case.seen, case.answers = failing, [case.never_arrive, lose_and_break]
    with pytest.raises(CommitUnknown):
        case.commit(append(), attempts=2)
    assert case.store.exists("data/op")

    case = Case()
    failing = Failing(case.store, {})
    case.seen, case.answers = failing, [lambda version, plan: lose_and_break(version, plan)]
    with pytest.raises(StoreError):
        case.commit(append(), attempts=1)
    assert case.store.exists("data/op")


def test_any_other_failure_leaves_every_file():
    def find(*_: Any) -> Snapshot | None:
        raise CorruptTable("snapshot-2")

    case = Case()
    case.store.write("data/op", b"x")
    with pytest.raises(CorruptTable):
        commit(case.store, case, Instead(toy, find=find), append())
    assert case.store.exists("data/op")


def test_pauses_double_up_to_ten_seconds_and_spread_by_a_fifth():
    assert [pause(i, 0.0) for i in range(5)] == [0.01, 0.02, 0.04, 0.08, 0.16]
    assert pause(10, 0.0) == 10.0
    assert pause(10_000, 1.0) == 12.0
    assert pause(0, 0.5) == pytest.approx(0.011)


def test_pauses_follow_the_waits_of_the_table():
    assert [pause(i, 0.0, (100, 250)) for i in range(3)] == [0.1, 0.2, 0.25]
    assert pause(3, 0.0, (500, 100)) == 0.5
    assert pause(3, 1.0, (0, 0)) == 0.0


@pytest.mark.parametrize(
    ("format", "properties", "waits_ms"),
    [
        ("paimon", {"commit.min-retry-wait": "1 s", "commit.max-retry-wait": "2 min"}, (1000, 120_000)),
        ("paimon", {"commit.min-retry-wait": "50 ms"}, (50, 10_000)),
        ("iceberg", {"commit.retry.min-wait-ms": "100", "commit.retry.max-wait-ms": "60000"}, (100, 60_000)),
        ("iceberg", {"commit.retry.min-wait-ms": "-1"}, (0, 10_000)),
        ("iceberg", {}, (10, 10_000)),
    ],
)
def test_a_lost_race_waits_as_long_as_the_table_says(tmp_path, format, properties, waits_ms):
    table = Lake(tmp_path).create_table("d.t", pa.schema([("id", pa.int64())]), format=format, properties=properties)
    view = doors.view(table)
    assert view.waits_ms() == waits_ms
    lost, waits = iter([True, True, True, False]), []

    class Losing:
        def __init__(self, head):
            self.version, self._head = head.version, head

        def advance(self, version, plan):
            return Outcome.LOST if next(lost) else self._head.advance(version, plan)

    operation = Append(request=Request(id="op", absent_until=view.version, schema_id=view.schema.id), added=())
    head = Losing(doors.dialect(table).head(doors.store(table)))
    commit(doors.store(table), head, doors.dialect(table), operation, sleep=waits.append, jitter=lambda: 0.0)
    assert waits == [min(waits_ms[0] * 2**i, waits_ms[1]) / 1000 for i in range(3)]


def test_errors_say_whether_the_same_call_may_succeed_later():
    lasting = (
        errors.InvalidInput,
        errors.NotFound,
        errors.AlreadyExists,
        errors.UnsupportedFeature,
        errors.StoreRefused,
        errors.CorruptTable,
        errors.OutOfReach,
    )
    tree = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.LakeError)]
    assert {error for error in tree if not error.retryable} == {error for error in tree if issubclass(error, lasting)}
