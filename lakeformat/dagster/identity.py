"""What tells two writes, consumers and branches apart. Two of one id are one: the second is taken for a repetition.

| id | made of |
| --- | --- |
| operation of an output or `lake.write` | run, step (with its mapping key), output of an op, asset, partitions |
| operation of `append_changes` | asset, upstream table, the snapshot that its changes follow |
| consumer of `append_changes` | asset; the upstream table is where it is kept |
| branch of an audited asset | first run of a chain of re-executions; the table is where it is kept |

A step writes a table once, except by outputs that add rows; `note_write` refuses the rest, since the second write would
replace the rows of the first.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from lakeformat.dagster.declaration import AssetTable
from lakeformat.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that writes: it makes the write exactly-once, and the snapshot records it. `first_run_id` is the run that
    this one re-executes, or itself; `output` the output of an op that is no asset."""

    run_id: str
    step: str
    backfill: str = ""
    first_run_id: str = ""
    output: str = ""


def origin_of(context: Any, output: str = "") -> Origin:
    """The run and step that write."""
    run = context.run
    backfill = run.tags.get("dagster/backfill", "")
    return Origin(run.run_id, _step(context).step.key, backfill, run.root_run_id or run.run_id, output)


def request_id(to: AssetTable, keys: Sequence[str], origin: Origin) -> str:
    """The id of one write. A retried step has the same id, and so has the re-execution of a run that appends."""
    # A re-execution replaces what the earlier run wrote, but must not append again what that run appended.
    run_id = origin.first_run_id if to.write == "append" and origin.first_run_id else origin.run_id
    name = "/".join(filter(None, (run_id, origin.step, origin.output, to.asset.to_user_string())))
    if not keys:
        return name
    ordered = sorted(keys)  # Dagster's order of keys that are no times is another in each process.
    digest = hashlib.sha256("\n".join(ordered).encode()).hexdigest()[:12]
    return f"{name}/{ordered[0]}...{ordered[-1]}/{digest}"


def change_id(asset: dg.AssetKey, source: str, after: int | None) -> str:
    """The id of the append of a table's changes after a snapshot."""
    return f"{asset.to_user_string()}/{source}/{after}"


def consumer_of(asset: dg.AssetKey) -> str:
    """The name under which a table keeps how far an asset has read its changes."""
    has_dashes = any("-" in part for part in asset.path)
    return "-".join(part.replace("-", "--") if has_dashes else part for part in asset.path)


def branch_of(origin: Origin) -> str:
    """The branch that the audited assets of a run, and of its re-executions, write to."""
    return f"audit_{origin.first_run_id or origin.run_id}"


_WRITTEN: WeakKeyDictionary[Any, dict[str, Origin]] = WeakKeyDictionary()  # By step: the tables that it has written.


def note_write(context: Any, to: AssetTable, origin: Origin) -> None:
    """Note that a step is about to write a table. Raises `InvalidInput` if it has written that before, and if other
    copies of the step write it too, unless these add rows by outputs of their own."""
    step = _step(context)
    if to.audit:
        _refuse_unpublished(context, to)
    if to.write == "replace" and step.step.key.endswith("]"):
        raise InvalidInput(
            f"the step {step.step.key} is one of several, and each would replace the rows of the others in {to.name}; "
            "write the table in a step after collect()"
        )
    written = _WRITTEN.setdefault(step, {})
    earlier = written.setdefault(to.name, origin)
    adds = to.write != "replace" and origin.output and origin.output != earlier.output
    if earlier is not origin and not adds:
        writer = f"output {earlier.output!r}" if earlier.output else "lake.write"
        raise InvalidInput(
            f"{writer} has written {to.name} in this step; join the rows, and write them at once (an asset that calls "
            "lake.write returns its result, not a frame)"
        )


def _refuse_unpublished(context: Any, to: AssetTable) -> None:
    """Raise `InvalidInput` if nothing in the run publishes what an audited asset writes."""
    graph = context.job_def.asset_layer.asset_graph
    name = to.asset.to_user_string()
    if not any(graph.get(key).metadata.get("publishes") == name for key in graph.get_all_asset_keys()):
        raise InvalidInput(
            f"'audit': True writes {to.name} to a branch of the run, and nothing in this run publishes it; run {name} "
            f"together with published({name}, key=...), or leave out 'audit'"
        )


def _step(context: Any) -> Any:
    return getattr(context, "op_execution_context", context).get_step_execution_context()
