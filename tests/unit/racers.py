"""What other processes run in the tests of storage; imports little, for each of them imports it."""

from lakeformat.storage.store import Store


def create_all(work: tuple[Store, int, int]) -> list[bool]:
    """Try to create each of some files; which of them this racer created."""
    store, i, turns = work
    return [store.create(f"race/{turn}", bytes([i]) * 5000) for turn in range(turns)]
