"""What others do between the plan of a verb and its commit."""

from collections.abc import Callable

import pytest

from lakeformat.maintenance.runner import Runner
from lakeformat.table import Table


def before_commits(monkeypatch: pytest.MonkeyPatch, table: Table, happens: Callable[[], object]) -> None:
    """Run `happens` before each commit of a verb of `table`."""

    class Interrupted(Runner):
        def commit(self, *arguments):
            happens()
            return Runner.commit(self, *arguments)

    runner = table._runner
    parts = (runner.name, runner.store, runner.format, runner.branch, runner.wap_id)
    monkeypatch.setattr(table, "_runner", Interrupted(*parts))
