"""Global transaction identifiers (GTIDs): the transactions applied so far,
independent of which server's log they come from.

Source: MariaDB documentation, "Global Transaction ID" (`domain-server-sequence`, increasing within each domain); MySQL
reference manual, "GTID Sets" (`uuid:1-5:7`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from lakeformat.errors import InvalidInput


class Gtid(NamedTuple):
    """One GTID. `source`: MariaDB's domain, or the UUID of MySQL's server; `server`: MariaDB's server id."""

    source: int | str
    number: int
    server: int = 0

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Parse "0-1-57" or "3e11fa47-...:57". Raises `ValueError`."""
        if ":" in text:
            source, number = text.split(":")
            return cls(source.lower(), int(number))
        domain, server, sequence = map(int, text.split("-"))
        return cls(domain, sequence, server)

    def __str__(self) -> str:
        if isinstance(self.source, str):
            return f"{self.source}:{self.number}"
        return f"{self.source}-{self.server}-{self.number}"


@dataclass(slots=True)
class Gtids:
    """A set of GTIDs. In MariaDB the last one of each domain includes all before it."""

    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # MariaDB: domain -> (sequence, server).
    # MySQL: source -> intervals (from, to), sorted and disjoint.
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Gtids:
        """Parse a GTID set. Raises `InvalidInput` if `text` is not one."""
        gtids = cls()
        try:
            for member in filter(None, (part.strip() for part in text.split(","))):
                if ":" not in member:
                    gtids.add(Gtid.parse(member))
                    continue
                source, *ranges = member.split(":")
                for one in ranges:
                    first, _, last = one.partition("-")
                    gtids._add_range(source.lower(), int(first), int(last or first))
        except ValueError as error:
            raise InvalidInput(f"{text!r} is not a set of GTIDs: '0-1-57' or '3e11fa47-...:1-57'") from error
        return gtids

    def add(self, gtid: Gtid) -> None:
        source, number, server = gtid
        if isinstance(source, str):
            self._add_range(source, number, number)
        elif source not in self.last or self.last[source][0] < number:
            self.last[source] = number, server

    def _add_range(self, source: str, first: int, last: int) -> None:
        ranges = self.ranges.setdefault(source, [])
        index = bisect_right(ranges, (first, first))
        if index and ranges[index - 1][1] >= first - 1:
            index -= 1
            first, last = ranges[index][0], max(last, ranges[index][1])
        end = index
        while end < len(ranges) and ranges[end][0] <= last + 1:
            last, end = max(last, ranges[end][1]), end + 1
        ranges[index:end] = [(first, last)]

    def __contains__(self, gtid: Gtid) -> bool:
        source, number, _ = gtid
        if isinstance(source, str):
            ranges = self.ranges.get(source, [])
            index = bisect_right(ranges, (number, 1 << 63))
            return index > 0 and ranges[index - 1][1] >= number
        return source in self.last and self.last[source][0] >= number

    def has_of_server(self, gtid: Gtid) -> bool:
        """Whether the GTID is in the set and from the server of the last known transaction:
        one server's sequence only increases."""
        source, number, server = gtid
        if isinstance(source, str):
            return gtid in self
        last = self.last.get(source)
        return last is not None and last[1] == server and number <= last[0]

    def __bool__(self) -> bool:
        return bool(self.last or self.ranges)

    def __str__(self) -> str:
        ours = [f"{domain}-{server}-{number}" for domain, (number, server) in sorted(self.last.items())]
        for source, ranges in sorted(self.ranges.items()):
            ours.append(":".join([source, *(f"{a}-{b}" if a < b else f"{a}" for a, b in ranges)]))
        return ",".join(ours)
