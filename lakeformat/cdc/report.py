"""What a sync did to one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeformat.errors import LakeError
from lakeformat.model.wording import count_text


@dataclass(frozen=True, slots=True)
class Report:
    """What a sync did to one table."""

    table: str
    rows: int = 0
    rows_by_kind: Mapping[str, int] = field(default_factory=dict)  # Changes by kind: "+I", "-U", "+U", "-D".
    snapshot_rows: int = 0
    position: str | None = None  # Source position; the table has all changes up to it.
    lag_seconds: float | None = None  # From the last commit at the source to its commit here; None: no changes.
    snapshots: tuple[int, ...] = ()
    schema_changes: tuple[str, ...] = ()
    error: LakeError | None = None  # Why `sync_database` stopped this table; no change is lost.
    is_complete: bool = False  # Whether the snapshot is complete.
    # Rows changed to what the source has and its log lacks, e.g. values of added columns; not counted in `rows`.
    filled_rows: int = 0
    seconds: float = 0.0  # Duration of the sync so far.
    kept_bytes: int | None = None  # Of the log, which PostgreSQL keeps for a table that stopped.
    # By column: values that it cannot hold, which became NULL since the source was opened (`on_misfit="null"`).
    misfits: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Snapshot rows, changes and filled rows per second."""
        return (self.snapshot_rows + self.rows + self.filled_rows) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """Progress in one line: "shop.orders: 120,000 rows of the snapshot, 30 changes, 41,000 rows/s, lag 0.4 s"."""
        filled = f", {self.filled_rows:,} filled" if self.filled_rows else ""
        lag = "" if self.lag_seconds is None else f", lag {self.lag_seconds:.1f} s"
        lost = "".join(f", {count:,} values of {name} did not fit and are NULL" for name, count in self.misfits.items())
        return (
            f"{self.table}: {count_text(self.snapshot_rows, 'row')} of the snapshot, {self.rows:,} changes{filled}, "
            f"{self.rows_per_second:,.0f} rows/s{lag}{lost}"
        )
