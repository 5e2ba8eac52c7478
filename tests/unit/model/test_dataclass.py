"""Our `dataclass` is held against the standard library's: the same class through both, the same answers."""

import copy
import dataclasses
import inspect
import pickle
import sys
import threading

from lakeformat.model.dataclass import dataclass


def declared(decorator):
    """The same classes by `decorator`."""

    @decorator(frozen=True, slots=True)
    class Parent:
        """A parent."""

        a: int
        b: float = 1.5
        c: list[int] = dataclasses.field(default_factory=list, compare=False)
        hidden: int = dataclasses.field(default=7, init=False, repr=False)

        def __post_init__(self):
            if self.a < 0:
                raise ValueError(f"a = {self.a}")

    @decorator(frozen=True, slots=True, kw_only=True)
    class Child(Parent):
        """A child."""

        d: str
        e: str = "e"

    @decorator(slots=True)
    class Changing:
        """Not frozen."""

        a: int
        total: int = 0

    @decorator(frozen=True, slots=True)
    class One:
        """Of one field."""

        value: object

    @decorator(frozen=True, slots=True)
    class Nothing:
        """Of none."""

    @decorator(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        a: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 3

    return Parent, Child, Changing, One, Nothing, Own


def answers(classes):
    """What the classes answer, exceptions as their type and text."""
    Parent, Child, Changing, One, Nothing, Own = classes
    nan, changing, parent = float("nan"), Changing(1), Parent(1, c=[1])

    def tell(ask):
        try:
            return ask()
        except Exception as error:
            return type(error), str(error).replace("declared.<locals>.", "")

    def set_total():
        changing.total += 2
        return repr(changing)

    return [
        tell(ask)
        for ask in (
            lambda: repr([Parent(1), Child(1, d="x"), Changing(2), One([One(2)]), Nothing(), Own(1)]),
            lambda: [Parent(1) == Parent(1, c=[3]), Parent(1) == Parent(2), Parent(1) == 1, Parent(1) != Parent(1)],
            lambda: [
                sys.version_info >= (3, 13)
                or One(nan) == One(nan),  # From 3.13 on the standard one compares NaN itself.
                One(1) == One(1.0),
                Nothing() == Nothing(),
                Own(1) == Own(2),
                Changing(1) == Changing(1),
            ],
            lambda: [hash(Parent(1)), hash(One("x")), hash(Nothing()), hash(Own(1)), hash(Child(1, d="x"))],
            lambda: hash(Changing(1)),
            lambda: Parent(),
            lambda: Parent(1, 2, 3, 4),
            lambda: Parent(-1),
            lambda: Child(1),
            lambda: Child(1, 2, [3], "x"),
            lambda: Child(1, d="x", nope=1),
            lambda: setattr(parent, "a", 2),
            lambda: delattr(parent, "a"),
            set_total,
            lambda: dataclasses.replace(parent, a=4),
            lambda: dataclasses.replace(parent, hidden=4),
            lambda: dataclasses.asdict(Child(1, d="x")),
            lambda: [str(inspect.signature(class_)) for class_ in classes],
            lambda: [class_.__match_args__ for class_ in classes],
            lambda: [class_.__slots__ for class_ in classes],
            lambda: [class_.__doc__ for class_ in classes],
            lambda: copy.deepcopy(parent).c is not parent.c,
            lambda: parent.__reduce_ex__(2)[2],
            lambda: Parent(1).c is not Parent(1).c,
        )
    ]


def test_it_answers_as_the_standard_one_does():
    ours, standard = answers(declared(dataclass)), answers(declared(dataclasses.dataclass))
    assert [str(our) for our in ours] == [str(field) for field in standard]


@dataclass(frozen=True, slots=True)
class Sent:
    """At the top of a module, where pickle finds it."""

    a: int
    b: tuple[int, ...] = (1, 2)


def test_values_are_pickled_and_copied():
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Sent(5), protocol)) == Sent(5)
    assert copy.copy(Sent(5)) == Sent(5)


def test_threads_may_make_the_first_values_together():
    @dataclass(frozen=True, slots=True)
    class Shared:
        """Made by many at once."""

        a: int

    made, gate = [], threading.Barrier(8)

    def make(number):
        gate.wait()
        made.append(Shared(number))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(instance.a for instance in made) == list(range(8))
