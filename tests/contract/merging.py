"""Merges drawn from a seed, and what they do row by row: written apart from the library, and shared with no part of it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """An expression as SQL, and as Python over a row of the table and one of the source (None where there is none)."""

    text: str
    of: Callable[[Row, Row], Any]

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Clause:
    group: str
    act: str
    condition: Said | None
    values: dict[str, Said] | None


@dataclass(frozen=True)
class Case:
    written: list[list[Row]]  # In one file for each list and partition.
    source: list[Row]
    on: Said
    clauses: list[Clause]


def eq(a, b):
    return None if a is None or b is None else a == b


def less(a, b):
    return None if a is None or b is None else a < b


def plus(a, b):
    return None if a is None or b is None else a + b


def both(*values):
    return False if False in values else None if None in values else True


ONS = [
    Said("t.id = s.id", lambda t, s: eq(t["id"], s["id"])),
    Said("s.id = t.id AND t.dt = s.dt", lambda t, s: both(eq(t["id"], s["id"]), eq(t["dt"], s["dt"]))),
    Said("t.id <=> s.id AND t.k <=> s.k", lambda t, s: t["id"] == s["id"] and t["k"] == s["k"]),
    Said("t.id = s.id AND t.v < s.v", lambda t, s: both(eq(t["id"], s["id"]), less(t["v"], s["v"]))),
    Said(
        "t.id + 1 = s.id AND s.op = 'u' AND t.k = 'x'",
        lambda t, s: both(eq(plus(t["id"], 1), s["id"]), eq(s["op"], "u"), eq(t["k"], "x")),
    ),
    Said("t.k = s.k AND t.id = s.v", lambda t, s: both(eq(t["k"], s["k"]), eq(t["id"], s["v"]))),
]
OF_BOTH = [
    Said("s.op = 'd'", lambda t, s: eq(s["op"], "d")),
    Said("t.v < s.v", lambda t, s: less(t["v"], s["v"])),
    Said("t.k IS NULL OR s.op = 'u'", lambda t, s: t["k"] is None or eq(s["op"], "u")),
    Said("NOT (t.k = s.k)", lambda t, s: None if eq(t["k"], s["k"]) is None else t["k"] != s["k"]),
]
OF_TARGET = [
    Said("t.v < 3", lambda t, s: less(t["v"], 3)),
    Said("dt = 'b'", lambda t, s: eq(t["dt"], "b")),
    Said("t.k IS NULL", lambda t, s: t["k"] is None),
]
OF_SOURCE = [
    Said("op = 'i'", lambda t, s: eq(s["op"], "i")),
    Said("s.v < 4", lambda t, s: less(s["v"], 4)),
    Said("s.id IS NOT NULL", lambda t, s: s["id"] is not None),
]
VALUES_OF_BOTH = [
    {"v": Said("t.v + s.v", lambda t, s: plus(t["v"], s["v"])), "k": Said("s.op", lambda t, s: s["op"])},
    {"dt": Said("s.dt", lambda t, s: s["dt"])},
    {"v": Said("t.id", lambda t, s: t["id"]), "id": Said("t.v", lambda t, s: t["v"])},
]
VALUES_OF_TARGET = [
    {"v": Said("t.v + 100", lambda t, s: plus(t["v"], 100))},
    {"k": Said("NULL", lambda t, s: None), "dt": Said("'moved'", lambda t, s: "moved")},
]
VALUES_OF_SOURCE = [
    {"id": Said("s.id + 1000", lambda t, s: plus(s["id"], 1000)), "dt": Said("'new'", lambda t, s: "new")},
    {"k": Said("op", lambda t, s: s["op"]), "v": Said("5", lambda t, s: 5), "dt": Said("NULL", lambda t, s: None)},
]
COLUMNS = ("id", "k", "v", "dt")


def random_case(rng: random.Random) -> Case:
    def drawn(ids):
        return {
            "id": rng.choice([None, *ids, *ids]) if rng.random() < 0.3 else rng.choice(ids),
            "k": rng.choice([None, "x", "y"]),
            "v": rng.choice([None, *range(6)]),
            "dt": rng.choice(["a", "b", "c"]),
        }

    wide = range(rng.choice([6, 30, 200]))
    written = [[drawn(wide) for _ in range(rng.choice([1, 8, 20]))] for _ in range(rng.choice([0, 1, 3]))]
    count = rng.choice([0, 1, 5, 15])
    source = [{**drawn(wide), "op": rng.choice([None, "u", "d", "i"])} for _ in range(count)]
    on = rng.choice(ONS)
    if rng.random() < 0.7:  # One row a key, so that most cases are no mistake.
        unique = {}
        for row in source:
            unique[row["id"]] = row
        source = list(unique.values())
    clauses = []
    groups = rng.sample(["when_matched", "when_not_matched", "when_not_matched_by_source"], rng.randint(1, 3))
    for group in groups:
        conditions, acts, values = {
            "when_matched": (OF_BOTH, ("update", "delete", "update_all"), VALUES_OF_BOTH),
            "when_not_matched": (OF_SOURCE, ("insert", "insert_all"), VALUES_OF_SOURCE),
            "when_not_matched_by_source": (OF_TARGET, ("update", "delete"), VALUES_OF_TARGET),
        }[group]
        number = rng.randint(1, 3)
        for index in range(number):
            always = index == number - 1 and rng.random() < 0.5
            act = rng.choice(acts)
            given = rng.choice(values) if act in ("update", "insert") else None
            clauses.append(Clause(group, act, None if always else rng.choice(conditions), given))
    return Case(written, source, on, clauses)


def keyed_case(rng: random.Random) -> Case:
    """A case for a table whose key is (id, dt): no key twice, none without a value, and none that changes."""
    case = random_case(rng)
    known: dict[Any, Row] = {}
    for part in case.written:
        for row in part:
            if row["id"] is not None:
                known.setdefault((row["id"], row["dt"]), row)
    rows = list(known.values())
    cut = rng.randint(0, len(rows))
    source = {(s["id"], s["dt"]): s for s in case.source if s["id"] is not None}
    clauses = []
    for clause in case.clauses:
        if clause.act == "update":
            pool = VALUES_OF_BOTH[:1] if clause.group == "when_matched" else VALUES_OF_TARGET[:1]
            clause = replace(clause, values=pool[0])
        elif clause.act == "insert":
            clause = replace(clause, values={**VALUES_OF_SOURCE[1], **KEY_OF_SOURCE})
        clauses.append(clause)
    return Case([part for part in (rows[:cut], rows[cut:]) if part], list(source.values()), ONS[1], clauses)


KEY_OF_SOURCE = {"id": Said("s.id", lambda t, s: s["id"]), "dt": Said("s.dt", lambda t, s: s["dt"])}


def apply_case(case: Case) -> tuple[list[Row], int] | None:
    """(the rows after the merge, how many rows were changed); None where the merge is a mistake."""
    matched = [c for c in case.clauses if c.group == "when_matched"]
    alone = [c for c in case.clauses if c.group == "when_not_matched_by_source"]
    missing = [c for c in case.clauses if c.group == "when_not_matched"]
    forgiving = not matched or (len(matched) == 1 and matched[0].act == "delete" and matched[0].condition is None)
    found: list[Row] = []
    changes = 0
    hit = set()
    for t in (row for part in case.written for row in part):
        partners = [i for i, s in enumerate(case.source) if case.on.of(t, s) is True]
        hit |= set(partners)
        if len(partners) > 1 and not forgiving:
            return None
        s = case.source[partners[0]] if partners else None
        clause = first(matched if partners else alone, t, s)
        changes += clause is not None
        if clause is None:
            found.append(t)
        elif clause.act == "update_all":
            found.append({name: s[name] for name in COLUMNS})
        elif clause.act == "update":
            found.append({**t, **{name: value.of(t, s) for name, value in clause.values.items()}})
    for i, s in enumerate(case.source):
        if i in hit:
            continue
        clause = first(missing, None, s)
        changes += clause is not None
        if clause is not None and clause.act == "insert_all":
            found.append({name: s[name] for name in COLUMNS})
        elif clause is not None:
            found.append({name: clause.values[name].of(None, s) if name in clause.values else None for name in COLUMNS})
    return found, changes


def first(clauses: list[Clause], t: Row | None, s: Row | None) -> Clause | None:
    return next((c for c in clauses if c.condition is None or c.condition.of(t, s) is True), None)
