"""The arguments of a CALL, and what a procedure is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lakeformat.model.dataclass import dataclass
from lakeformat.sql import names
from lakeformat.sql.result import Result
from lakeformat.sql.session import Context
from lakeformat.table import Table


@dataclass(slots=True)
class Call:
    """A CALL with its arguments. Each is taken once; `close` refuses the rest."""

    context: Context
    name: str
    offset: int
    given: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        return self.given.pop(name, default)

    def need(self, name: str) -> Any:
        if self.given.get(name) is None:
            raise self.context.script.invalid(self.offset, f"{self.name} needs {name} => ...")
        return self.given.pop(name)

    def table(self) -> Table:
        path = tuple(str(self.need("table")).split("."))
        return names.table(self.context, path, f"SQL at {self.context.script.position(self.offset)}")

    def tables(self) -> list[Table]:
        """The table, or all tables of a database: `db.*`."""
        database, _, last = str(self.given.get("table")).rpartition(".")
        if last != "*":
            return [self.table()]
        self.need("table")
        if database not in self.context.databases:
            raise self.context.script.invalid(self.offset, f"{self.name}: no database {database!r}")
        return [self.context.lake.table(name) for name in self.context.lake.tables(database)]

    def whole(self, name: str, value: Any) -> int:
        """An integer, also given as text."""
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        try:
            number = int(value) if is_number or isinstance(value, str) else None
        except (ValueError, OverflowError):  # Text, or a number that is not finite.
            number = None
        if number is None or (is_number and number != value):
            raise self.context.script.invalid(self.offset, f"{self.name}: {name} => {value!r} is not a whole number")
        return number

    def whole_or_none(self, name: str) -> int | None:
        given = self.take(name)
        return None if given is None else self.whole(name, given)

    def mapping(self, name: str) -> dict[str, str]:
        """A map, or text 'k=v,l=w'."""
        value = self.take(name) or {}
        if isinstance(value, str):
            value = dict(pair.strip().split("=", 1) for pair in value.split(",") if "=" in pair)
        if not isinstance(value, Mapping):
            raise self.context.script.invalid(self.offset, f"{self.name}: {name} => {value!r} is not a map")
        return {str(k): str(v) for k, v in value.items()}

    def options(self, ignored: tuple[str, ...] = ()) -> dict[str, str]:
        """`options`, a map or 'k=v,l=w', without the `ignored` ones, which only tune speed."""
        return {key: value for key, value in self.mapping("options").items() if key not in ignored}

    def no_options(self, ignored: tuple[str, ...] = ()) -> None:
        """Refuse all options but the ignored ones."""
        self.refuse_options(self.options(ignored))

    def refuse_options(self, left: Mapping[str, Any]) -> None:
        if left:
            raise self.context.script.unsupported(
                self.offset, f"{self.name}: option {next(iter(left))!r} is not supported; set it on the table"
            )

    def close(self, ignored: tuple[str, ...] = ()) -> None:
        """Refuse arguments that were not taken; those in `ignored` only tune speed."""
        left = [name for name, value in self.given.items() if value is not None and name not in ignored]
        if left:
            raise self.context.script.unsupported(self.offset, f"{self.name}({left[0]} => ...): not supported")


@dataclass(frozen=True, slots=True)
class Procedure:
    parameters: tuple[str, ...]
    run: Callable[[Call], Result]
