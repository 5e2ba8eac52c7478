"""A query: the tables that its text names, the columns and conditions that it needs of each,
and the engine that runs it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokens import Token

from lakeformat.arguments import epoch_ms
from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression.spark_sql import quoted, to_sql
from lakeformat.model.dataclass import dataclass
from lakeformat.model.predicate import Expression, Literal
from lakeformat.model.schema import Type
from lakeformat.sql import (
    catalog_tables,
    hidden,
    in_process,
    inline,
    lineage,
    names,
    on_spark,
    parameters,
    pushdown,
    sources,
    text,
    transforms,
)
from lakeformat.sql.prepared import Query, Reference
from lakeformat.sql.result import Result
from lakeformat.sql.session import Context, Session, Temporary
from lakeformat.sql.sources import Source
from lakeformat.sql.statements import settings
from lakeformat.sql.text import Piece, Script
from lakeformat.sql.translation.spark_types import SparkType

_INCREMENTAL, _BETWEEN = "paimon_incremental_query", "paimon_incremental_between_timestamp"
_TO_TAG = "paimon_incremental_to_auto_tag"
_PERIOD = re.compile(r"\d{4}-\d{2}-\d{2}( \d{2})?")  # Names that Paimon gives tags of a day or an hour.
_WATERMARK = re.compile(r"watermark-(\d+)")
_SECONDS = 1 << 53  # Since 1970; NaN and infinity are not below it either.


def prepare(context: Context, piece: Piece) -> Query:
    """Parse a query and resolve its tables. Raises `InvalidInput` and `NotFound` with the place in the text."""
    piece = transforms.with_constants(context, piece)
    tree = _tree(piece)
    for name in parameters.used(tree):
        parameters.value(context.params, name)
    called, piece = piece, inline.inlined(context, piece, tree, resolved)
    if piece is not called:
        tree = _tree(piece)
    references = resolved(context, piece, tree)
    for reference, need in zip(references, pushdown.needs(tree, references, context.params), strict=True):
        _narrow(reference, need)
    return Query(piece, tree, tuple(references), context.params)


def resolved(context: Context, piece: Piece, tree: Any) -> list[Reference]:
    """The tables that a parsed query reads."""
    tokens, mentioned = text.tokens(piece), hidden.mentioned(tree)
    return [_reference(context, piece, tokens, node, mentioned) for node in _tables(tree)]


def run(context: Context, piece: Piece) -> Result:
    """The query's rows."""
    query = prepare(context, piece)
    origins = partial(lineage.origins, query.tree, query.references)
    if context.spark is not None:
        return Result(frame=on_spark.frame(context, query), origins=origins)
    return Result(stream=partial(in_process.stream, context, query), origins=origins)


def tables(script: Script) -> list[tuple[str, ...]]:
    """The names of the tables that a text of one query reads at their current version, in the order of the text. The
    warehouse is not read, so a name may be that of a frame or a metadata table."""
    piece = _only(script)
    tree = _tree(piece)
    paths: dict[tuple[str, ...], None] = {}
    tokens = text.tokens(piece)
    for node in _tables(tree):
        if isinstance(node.this, exp.Identifier | exp.Dot):
            path, _, end = _spelt(node)
            if not text.version_end([token for token in tokens if token.start >= end], 0):
                paths[path] = None
    return list(paths)


def parameters_of(script: Script) -> list[str]:
    """The names of the parameters of a text of one query, sorted; those of `?` are `_0`, `_1` ..."""
    return parameters.used(_tree(_only(script)))


def named(piece: Piece) -> list[tuple[str, ...]]:
    """The names of the tables and frames that a query reads, at any version."""
    return [_spelt(node)[0] for node in _tables(_tree(piece)) if isinstance(node.this, exp.Identifier | exp.Dot)]


def has_parameters(piece: Piece) -> bool:
    return bool(parameters.used(_tree(piece)))


def schema(context: Context, piece: Piece) -> Any:
    """The columns of a query: a `pyarrow.Schema`, or a StructType with a Spark session."""
    query = prepare(context, piece)
    if context.spark is not None:
        return on_spark.frame(context, query).schema
    return in_process.stream(context, query, limit=0).schema


def rows(context: Context, piece: Piece) -> Any:
    """The query's rows as input of a verb: an Arrow table, or a Spark DataFrame."""
    result = run(context, piece)
    return result.to_spark() if context.spark is not None else result.to_arrow()


def scalar(context: Context, piece: Piece) -> pa.Scalar:
    """The value of an expression without columns, with the engine's type."""
    result = rows(context, Piece.join(context.script, ["SELECT ", piece, " AS value"]))
    return (result if isinstance(result, pa.Table) else result.toArrow())["value"][0]


def constant(context: Context, piece: Piece) -> Any:
    """The value of an expression without columns."""
    try:
        return scalar(context, piece).as_py()
    except ValueError as error:  # A struct with two fields of one name.
        raise context.script.invalid(piece.origin(0), f"{piece.text.strip()!r} is not a constant: {error}") from error


@dataclass(frozen=True, slots=True)
class ViewRows:
    """Rows of a view's query. `columns`: (the query's name, the view's name). If `can_narrow` (the query's column names
    are known and unique), columns and conditions are pushed into the query, so that its tables are pruned."""

    name: str
    context: Context
    query: Piece
    columns: tuple[tuple[str, str], ...]
    can_narrow: bool
    kept: tuple[str, ...] | None = None
    conditions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.columns) if self.kept is None else self.kept

    @property
    def types(self) -> Mapping[str, Type]:
        return {}

    def typed_columns(self) -> tuple[tuple[str, SparkType], ...]:
        with self._named():
            types = [type for _, type in in_process.columns(self.prepared())]
        return tuple(zip(self.names, types, strict=False))

    def narrowed(self, columns: Sequence[str] | None, where: Expression | None) -> ViewRows:
        if not self.can_narrow:
            return self
        kept = self.kept if columns is None else tuple(columns)
        said = self.conditions if where is None else (*self.conditions, to_sql(where))
        return replace(self, kept=kept, conditions=said)

    def stream(self) -> Any:
        with self._named():
            result = in_process.rows(self.context, self.prepared())
            self._require(result.column_names)
        return result.select(range(len(self.names))).rename_columns(list(self.names))

    def frame(self, spark: Any) -> Any:
        with self._named():
            result = on_spark.frame(replace(self.context, spark=spark), self.prepared())
            self._require(result.columns)
        rest = [f"_lakeformat_rest_{index}" for index in range(len(result.columns) - len(self.names))]
        return result.toDF(*self.names, *rest).select(*map(quoted, self.names))

    def prepared(self) -> Query:
        """The view's query, narrowed to the requested columns and conditions."""
        return prepare(self.context, self._narrowed())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the view's name to errors of its query."""
        try:
            yield
        except (InvalidInput, NotFound, UnsupportedFeature) as error:
            raise type(error)(f"view {self.name}: {error}") from error

    def _narrowed(self) -> Piece:
        if not self.can_narrow:
            return self.query
        inner = ", ".join(f"{quoted(given)} AS {quoted(name)}" for given, name in self.columns if name in self.names)
        outer = ", ".join(map(quoted, self.names))
        where = "".join(
            f" {'AND' if index else 'WHERE'} ({condition})" for index, condition in enumerate(self.conditions)
        )
        parts: list[str | Piece] = [
            f"SELECT {outer} FROM (SELECT {inner} FROM (",
            self.query,
            f"\n) AS _narrowed) AS _named{where}",
        ]
        return Piece.join(self.context.script, parts)

    def _require(self, columns: Sequence[str]) -> None:
        if len(columns) < len(self.names):
            raise InvalidInput(f"it has {len(self.names)} columns, and its query gives {len(columns)}")


# --- private ----------------------------------------------------------------------------------------------------------


def _temporary(context: Context, path: tuple[str, ...]) -> ViewRows | None:
    made = context.session.temporary.get(path[0].casefold()) if len(path) == 1 else None
    return None if made is None else of_temporary(context, made)


def of_temporary(context: Context, temporary: Temporary) -> ViewRows:
    """The rows of a temporary view."""
    inside = replace(temporary.context, spark=context.spark, views=(*context.views, temporary.name))
    return ViewRows(
        temporary.name, inside, temporary.query, temporary.columns, _is_named(temporary.query, temporary.columns)
    )


def _kept(context: Context, path: tuple[str, ...], where: str) -> ViewRows | None:
    """The rows of the catalog's view of this name, if there is one."""
    view = names.view(context, path)
    if view is None:
        return None
    if view.name in context.views:
        raise InvalidInput(f"{where}: view {view.name} reads itself, by {' and '.join(context.views)}")
    script = text.read(view.query)
    session = Session(view.namespace, context.session.settings, catalogs=context.session.catalogs)
    inside = Context(context.lake, session, script, {}, {}, context.spark, views=(*context.views, view.name))
    columns = tuple(zip(view.query_columns, (field.name for field in view.fields), strict=True))
    whole = Piece.cut(script, 0, len(script.text))
    return ViewRows(view.name, inside, whole, columns, _is_named(whole, columns))


def _is_named(query: Piece, columns: Sequence[tuple[str, str]]) -> bool:
    """Whether both engines give the query's columns these names, and the names are unique."""
    tree = _tree(query)
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    plain = isinstance(tree, exp.Select) and all(
        isinstance(expression, exp.Alias | exp.Column | exp.Star) for expression in tree.expressions
    )
    return plain and len({given.casefold() for given, _ in columns}) == len(columns)


def _only(script: Script) -> Piece:
    """The one query of a text."""
    statements = list(text.statements(script))
    if len(statements) != 1:
        raise script.invalid(statements[1].offset, "expected one query")
    return Piece.cut(script, statements[0].offset, statements[-1].end)


def _tree(piece: Piece) -> Any:
    tree = parameters.marked(text.parse(piece))
    if not isinstance(tree, exp.Query | exp.Values | exp.Table):
        raise piece.script.invalid(piece.origin(0), f"expected a query, found {tree.key.upper()}")
    return tree


def _spelt(node: Any) -> tuple[tuple[str, ...], int, int]:
    """The path that names a table, with its start and end in the piece's text."""
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    path = tuple(part.name.replace(text.DOLLAR, "$") for part in parts)
    return path, parts[0].meta["start"], parts[-1].meta["end"] + 1


def _tables(tree: Any) -> Iterator[Any]:
    """The nodes that name tables, in the order of the text; not those that name a CTE in scope."""
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Identifier | exp.Dot):
            if not (node.args.get("db") is None and _is_cte(node)) and node.find_ancestor(exp.Hint) is None:
                yield node
        elif isinstance(node.this, exp.Anonymous) and node.this.name.lower() in (_INCREMENTAL, _BETWEEN, _TO_TAG):
            yield node


def _is_cte(node: Any) -> bool:
    name, here = node.name.casefold(), node
    while here.parent is not None:
        here, child = here.parent, here
        with_ = here.args.get("with_")
        if with_ is None:
            continue
        defined = [expression.alias.casefold() for expression in with_.expressions]
        if child is not with_:
            visible = defined
        else:
            inside = next(i for i, expression in enumerate(with_.expressions) if _holds(expression, node))
            visible = defined[: inside + bool(with_.args.get("recursive"))]
        if name in visible:
            return True
    return False


def _holds(above: Any, node: Any) -> bool:
    while node is not None and node is not above:
        node = node.parent
    return node is above


def _reference(context: Context, piece: Piece, tokens: list[Token], node: Any, mentioned: frozenset[str]) -> Reference:
    """`mentioned`: the names that the query reads, which may be those of hidden columns."""
    if isinstance(node.this, exp.Anonymous):
        return _incremental(context, piece, tokens, node)
    path, start, end = _spelt(node)
    where = f"SQL at {context.script.position(piece.origin(start))}"
    version, until = _version(context, piece, tokens, end)
    if (frame := _frame(context, ".".join(path))) is not None:
        if version:
            raise context.script.invalid(piece.origin(start), f"{'.'.join(path)} is a frame and has no versions")
        return Reference(node, start, end, path, sources.of_frame(*frame))
    if not version and (temporary := _temporary(context, path)) is not None:
        return Reference(node, start, end, path, temporary)
    try:
        resolved = names.find(context, path, where)
    except NotFound:
        listing = catalog_tables.find(context, path, where)
        if listing is not None and not version:
            return Reference(node, start, end, path, sources.ArrowRows(listing))
        view = None if listing is not None else _kept(context, path, where)
        if version and (view is not None or listing is not None):
            kind = f"{'.'.join(path)} is a listing" if view is None else f"{view.name} is a view"
            raise context.script.invalid(piece.origin(start), f"{kind} and has no versions") from None
        if view is None:
            raise
        return Reference(node, start, end, path, view)
    if resolved.metadata is None:
        resolved = replace(resolved, table=settings.with_options(context, resolved.table))
    if version:
        if resolved.tag is not None:
            raise context.script.invalid(piece.origin(start), f"{'.'.join(path)} is a version already")
        resolved = _at_version(context, resolved, version, where)
    elif (
        not resolved.version
        and resolved.tag is None
        and resolved.metadata is None
        and resolved.table.format == "paimon"
    ):
        resolved = replace(resolved, version=settings.version(context, resolved.table.name))
    source = sources.of_table(resolved)
    if not isinstance(source, sources.TableRows) or resolved.metadata is not None:
        return Reference(node, start, until, path, source)
    columns = hidden.used(resolved.table, mentioned, where)
    placed = hidden.PlacedRows(source, resolved.table, columns) if columns else source
    return Reference(node, start, until, path, placed, hidden=columns)


def _frame(context: Context, name: str) -> tuple[str, Any] | None:
    """The caller's frame or the session's changelog view of this name; the case may differ."""
    for frames in (context.frames, context.session.views):
        if name in frames:
            return name, frames[name]
        for spelt, frame in frames.items():
            if spelt.casefold() == name.casefold():
                return spelt, frame
    return None


def _version(context: Context, piece: Piece, tokens: list[Token], end: int) -> tuple[dict[str, Any], int]:
    """The `VERSION AS OF ...` or `TIMESTAMP AS OF ...` after a name, and where it ends."""
    following = [token for token in tokens if token.start >= end]
    stop = text.version_end(following, 0)
    if not stop:
        return {}, end
    kind, first, until = following[0].text.upper(), following[3].start, following[stop - 1].end + 1
    said = Piece(context.script, piece.text[first:until], ((0, piece.origin(first)),))
    value = parameters.constant(said, context.params)
    return {kind: constant(context, said) if value is parameters.UNKNOWN else value}, until


def _at_version(context: Context, named: names.Named, version: dict[str, Any], where: str) -> names.Named:
    """The table at `VERSION AS OF` a snapshot, a tag or a branch, or `TIMESTAMP AS OF` a time or seconds since 1970."""
    (kind, value), table = next(iter(version.items())), named.table
    if isinstance(value, bool) or value is None:
        raise InvalidInput(f"{where}: {kind} AS OF {value!r} is not a version")
    if kind == "TIMESTAMP":
        if isinstance(value, int | float | Decimal) and -_SECONDS < value < _SECONDS:
            return names.Named(table, None, named.metadata, {"as_of": int(value * 1000)})
        if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) > 4:
            return names.Named(table, None, named.metadata, {"as_of": int(value) * 1000})
        if not isinstance(value, str | dt.date):
            raise InvalidInput(f"{where}: TIMESTAMP AS OF {value!r} is not a time")
        return names.Named(table, None, named.metadata, {"as_of": epoch_ms(value)})
    if isinstance(value, int):
        return names.Named(table, None, named.metadata, {"snapshot_id": value})
    known = table.inspect.tags()
    tags = known.column(0).to_pylist()
    if value in tags:
        return names.Named(table, None, named.metadata, {"tag": value})
    if str(value).isdecimal():
        return names.Named(table, None, named.metadata, {"snapshot_id": int(value)})
    if (watermark := _WATERMARK.fullmatch(str(value))) is not None:
        return names.Named(
            table, None, named.metadata, {"snapshot_id": sources.watermarked(table, int(watermark[1]), where)}
        )
    if value in table.inspect.branches().column(0).to_pylist():
        return names.Named(table.branch(value), None, named.metadata)
    raise InvalidInput(
        f"{where}: VERSION AS OF {value!r}: {table.name} has no such tag or branch; tags are "
        f"{', '.join(tags) or 'none'}"
    )


def _incremental(context: Context, piece: Piece, tokens: list[Token], node: Any) -> Reference:
    """`paimon_incremental_query('db.t', 'from', 'to')`: rows that came after one snapshot or tag, up to another; or
    after one time, up to another (`..._between_timestamp`); or after the tag of the period before, up to that of a day
    or hour (`..._to_auto_tag`)."""
    token = next(t for t in tokens if t.start == node.this.meta["start"])
    where = f"SQL at {context.script.position(piece.origin(token.start))}"
    arguments = [parameters.node_constant(expression, context.params) for expression in node.this.expressions]
    name = node.this.name.lower()
    wanted = 2 if name == _TO_TAG else 3
    if len(arguments) != wanted or any(value is parameters.UNKNOWN or value is None for value in arguments):
        raise InvalidInput(f"{where}: write {name}('db.t', {'tag' if wanted == 2 else 'from, to'})")
    table = names.table(context, tuple(str(arguments[0]).split(".")), where)
    if name == _TO_TAG:
        ends = _period(table, str(arguments[1]), where)
    else:
        ends = [(_latest if name == _BETWEEN else _snapshot)(table, end, where) for end in arguments[1:]]
    close, depth = next(i for i, t in enumerate(tokens) if t is token) + 1, 0
    while True:
        depth += (tokens[close].text == "(") - (tokens[close].text == ")")
        if not depth:
            break
        close += 1
    if name != _INCREMENTAL and ends[1] <= ends[0]:  # No snapshot between the times, or no earlier tag.
        source: Source = sources.of_table(names.Named(table)).narrowed(None, Literal(False))
    else:
        source = sources.ChangedRows(table.changes(*ends), table.schema.primary_key)
    return Reference(node, token.start, tokens[close].end + 1, (_INCREMENTAL,), source)


def _snapshot(table: Any, version: Any, where: str) -> int:
    tags = table.inspect.tags().to_pylist()
    tagged = {tag["tag_name"]: tag["snapshot_id"] for tag in tags if "tag_name" in tag}
    if str(version) in tagged:
        return int(tagged[str(version)])
    if not str(version).isdecimal():
        raise InvalidInput(f"{where}: {version!r} is not a snapshot and no tag of {table.name}")
    return int(version)


def _period(table: Any, tag: str, where: str) -> list[int]:
    """The snapshots of the tag before a day's or hour's tag, and of that tag; [0, 0] if one of them does not exist."""
    if not _PERIOD.fullmatch(tag):
        raise InvalidInput(f"{where}: {_TO_TAG} takes the tag of a day or an hour, such as '2024-12-04', not {tag!r}")
    tagged = {row["tag_name"]: row["snapshot_id"] for row in table.inspect.tags().to_pylist() if "tag_name" in row}
    before = [name for name in tagged if _PERIOD.fullmatch(name) and len(name) == len(tag) and name < tag]
    return [tagged[max(before)], tagged[tag]] if before and tag in tagged else [0, 0]


def _latest(table: Any, version: Any, where: str) -> int:
    """The newest snapshot committed by this time, a text or milliseconds since 1970; 0 if there is none."""
    until = int(version) if str(version).isdecimal() else epoch_ms(str(version))
    return max((snapshot.id for snapshot in table.snapshots() if snapshot.timestamp_ms <= until), default=0)


def _narrow(reference: Reference, need: pushdown.Need) -> None:
    """Narrow a reference to the columns and conditions that the query needs."""
    reference.names = reference.source.names
    if need.columns is not None:
        reference.source = reference.source.narrowed(need.columns, None)
    conditions_shown, is_whole = [], True
    for condition in need.conditions:
        try:
            if condition is None or not (is_whole or pushdown.is_total(condition, reference.source)):
                is_whole = False
                continue
            reference.source = reference.source.narrowed(None, condition)
        except (InvalidInput, NotFound):  # A comparison that the engine may support.
            is_whole = False
            continue
        conditions_shown.append(pushdown.shown(condition))
    reference.pushed = " AND ".join(conditions_shown)
