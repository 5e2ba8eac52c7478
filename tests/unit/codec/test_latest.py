"""What is kept of the latest call is returned for the same arguments alone."""

from concurrent.futures import ThreadPoolExecutor

from lakeformat.codec.latest import latest


def test_a_call_with_the_same_objects_is_not_computed_again():
    calls = []

    @latest
    def ends(values, ids):
        calls.append(values)
        return values[0], values[-1], sorted(ids)

    values = (1.0, 2.0)
    assert ends(values, frozenset({3})) == (1.0, 2.0, [3])
    assert ends(values, frozenset({3})) == (1.0, 2.0, [3])
    assert len(calls) == 1


def test_equal_arguments_that_are_other_objects_are_computed_again():
    @latest
    def text(value, ids):
        return f"{value} {sorted(ids)}"

    assert [text(value, frozenset()) for value in (0.0, -0.0, 1, 1.0, True)] == [
        "0.0 []", "-0.0 []", "1 []", "1.0 []", "True []",
    ]  # fmt: skip
    assert text(True, frozenset({1})) == "True [1]"
    assert text(True, ids=frozenset({2})) == "True [2]"


def test_threads_get_the_results_of_their_own_arguments():
    @latest
    def doubled(values):
        return tuple(2 * value for value in values)

    arguments = [(number, number + 1) for number in range(8)]

    def repeated(values):
        return all(doubled(values) == (2 * values[0], 2 * values[1]) for _ in range(2_000))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(repeated, arguments))
