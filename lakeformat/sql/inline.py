"""Calls of SQL functions in a text -> their bodies, with the arguments cast to the parameters' types.

A body is spliced into the text of the caller, so conditions in it are pushed down, and the rules for queries hold for
it. Names keep their meaning: columns in arguments are qualified by the caller's tables, and the tables of a body get
aliases of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from lakeformat.errors import InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression.spark_sql import quoted, spark_type
from lakeformat.model.dataclass import dataclass
from lakeformat.model.schema import Field
from lakeformat.sql import builtin, parameters, pushdown, text, transforms
from lakeformat.sql.session import Context, Session
from lakeformat.sql.text import Piece
from lakeformat.sql.titles import titled
from lakeformat.warehouse.functions import Function

References = Callable[[Context, Piece, Any], Sequence[Any]]  # Resolves the tables of a parsed query: query.references.
_MOST_CHARACTERS = 100_000
_RANDOM = (exp.Rand, exp.Randn, exp.Uuid)
_RANDOMS = frozenset({"random", "shuffle", "monotonically_increasing_id", "spark_partition_id", "randstr", "uniform"})
_OF_ROWS = (exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)
_CLAUSES = frozenset({
    "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION",
    "INTERSECT", "EXCEPT", "MINUS", "LATERAL", "WINDOW", "QUALIFY",
})  # fmt: skip
Edit = tuple[int, int, str]  # Replaces the text from start to end.


@dataclass(frozen=True, slots=True)
class Use:
    """The place of a parameter in a body."""

    start: int
    end: int
    parameter: int
    lambdas: frozenset[str] = frozenset()  # Variables of the lambda functions around it, in lower case.


@dataclass(frozen=True, slots=True)
class Body:
    """A parsed body. `text` begins with SELECT, which `head` characters of an expression's text are not the body's."""

    text: str
    head: int
    tree: Any
    uses: tuple[Use, ...]
    edits: tuple[Edit, ...]  # Its tables' full names, and aliases of its own.
    reads_tables: bool  # Whether it has a subquery.
    columns: frozenset[str] = frozenset()  # Of its tables, in lower case.
    aliases: frozenset[str] = frozenset()  # Of its selects and tables, in lower case.


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a text: from the function's name to the closing parenthesis, and its arguments as (start, end)."""

    node: Any
    function: Function
    start: int
    end: int
    arguments: tuple[tuple[str | None, int, int], ...]


def inlined(context: Context, piece: Piece, tree: Any, references: References) -> Piece:
    """A query's text without calls of SQL functions; the piece itself if it has none. Columns that such a call computes
    keep the name that Spark gives them. Raises `InvalidInput` for wrong arguments, `UnsupportedFeature` for functions
    of other languages."""
    return _Text(context, piece, references).inlined(tree, with_titles=True)


def of_expression(context: Context, piece: Piece) -> Piece | None:
    """An expression's text without calls of SQL functions; None if one of them has a subquery,
    which needs the whole query."""

    def none(*_: Any) -> Sequence[Any]:
        raise _NeedsTables

    if not _may_call(context):
        return piece
    head = len("SELECT ")
    query = Piece.join(piece.script, ["SELECT ", piece])
    try:
        done = _Text(context, query, none).inlined(text.parse(query, "expression"), with_titles=False)
    except _NeedsTables:
        return None
    return piece if done is query else done.part(head, len(done.text))


def body_of(context: Context, function: Function, references: References) -> Body:
    """Parse the body of a SQL function, and resolve its names: to parameters, to columns of its tables. Raises
    `InvalidInput`."""
    script = text.read(str(function.body))
    context = replace(within(context, function), script=script)
    tokens = script.tokens
    if not tokens or script.question_marks:
        raise InvalidInput(
            f"function {function.name}: a body is an expression or a query without parameters of its own"
        )
    whole = Piece.cut(script, tokens[0].start, tokens[-1].end + 1)
    head = "" if tokens[0].text.upper() in ("SELECT", "WITH", "VALUES", "FROM") else "SELECT "
    piece = transforms.with_constants(context, Piece.join(script, [head, whole]))
    if head:
        text.expression(piece.part(len(head), len(piece.text)))  # One expression, and nothing behind it.
    tree = text.parse(piece, "body")
    if not isinstance(tree, exp.Query | exp.Values) or parameters.used(parameters.marked(tree.copy())):
        raise InvalidInput(
            f"function {function.name}: a body is an expression or a query without parameters of its own"
        )
    has_query = not head or sum(1 for _ in tree.find_all(exp.Query)) > 1
    resolved = references(context, piece, tree) if has_query else ()
    bound = _bound(tree, resolved) if has_query else {}
    if bound is None:
        raise InvalidInput(
            f"function {function.name}: its body's columns cannot be resolved; qualify them by their tables"
        )
    tables = _aliases(tree)
    depth = len(context.functions)
    rename = {alias: f"_function_{depth}_{alias}" for alias in tables}
    edits = [*_renamed(context, tree, rename, resolved)]
    uses = tuple(_uses(function, tree, bound, frozenset(tables)))
    _require_plain(function, tree, head)
    columns = frozenset(name.casefold() for reference in resolved for name in reference.source.names)
    selected = {
        projection.alias.casefold()
        for select in tree.find_all(exp.Select)
        for projection in select.expressions
        if projection.alias
    }
    return Body(piece.text, len(head), tree, uses, tuple(edits), has_query, columns, frozenset(selected | set(tables)))


def find(context: Context, path: tuple[str, ...]) -> Function | None:
    """The function that a name means: a temporary one of the session, or the catalog's."""
    if len(path) == 1:
        if (temporary := context.session.functions.get(path[0].casefold())) is not None:
            return temporary
        path = (context.session.database, *path)
    elif len(path) > 2 and path[0] in context.session.catalogs:
        path = path[1:]
    if not context.lake.functions.are_kept:
        return None
    database = ".".join(path[:-1])
    near = [name for name in context.databases if name.casefold() == database.casefold()]
    database = near[0] if len(near) == 1 else database
    return context.lake.functions.find(f"{database}.{path[-1]}")


def within(context: Context, function: Function) -> Context:
    """The context of a body's names: a temporary function also knows the session's."""
    if function.is_temporary:
        return replace(context, session=replace(context.session, database=function.namespace))
    of = context.session
    session = Session(function.namespace, of.settings, catalogs=of.catalogs, databases=of.databases)
    return replace(context, session=session, frames={})


# --- private ----------------------------------------------------------------------------------------------------------


class _NeedsTables(Exception):
    """An expression calls a function whose body has a subquery."""


def _may_call(context: Context) -> bool:
    return bool(context.session.functions) or context.lake.functions.are_kept


@dataclass(slots=True)
class _Text:
    """A text in which calls are replaced, inner ones first."""

    context: Context
    piece: Piece
    references: References
    known: dict[tuple[str, ...], Function | None] = field(default_factory=dict)

    def inlined(self, tree: Any, with_titles: bool) -> Piece:
        if not _may_call(self.context):
            return self.piece
        while calls := list(self._calls(tree)):
            inner = [call for call in calls if not any(_is_within(other, call) for other in calls)]
            edits: list[Edit] = [(call.start, call.end, self._replacement(call, tree)) for call in inner]
            edits += self._titles(calls) if with_titles else []
            with_titles = False
            self.piece = _edited(self.piece, edits)
            tree = parameters.marked(text.parse(self.piece))
        return self.piece

    def _calls(self, tree: Any) -> Iterator[Call]:
        tokens: list[Token] = []
        for node in tree.find_all(exp.Anonymous):
            path = _path(node)
            if path is None or isinstance(node.parent, exp.Table):
                continue
            if not self._is_ours(path):
                self._require_other(node, path)
                continue
            tokens = tokens or text.tokens(self.piece)
            yield self._call(node, path, tokens)

    def _is_ours(self, path: tuple[str, ...]) -> bool:
        if path not in self.known:
            is_builtin = len(path) == 1 and path[0].lower() in builtin.UNNAMED
            self.known[path] = None if is_builtin else find(self.context, path)
        return self.known[path] is not None

    def _require_other(self, node: Any, path: tuple[str, ...]) -> None:
        """Refuse an unknown function in a body: the caller's database may have one of its name."""
        if not self.context.functions or (len(path) == 1 and path[0].lower() in builtin.UNNAMED):
            return
        full = ".".join(path if len(path) > 1 else (self.context.session.database, *path))
        if {full.casefold(), path[-1].casefold()} & {name.casefold() for name in self.context.functions}:
            raise self._invalid(node, f"function {full} calls itself")
        position = self.piece.script.position(self.piece.origin(node.meta["start"]))
        raise NotFound(f"SQL at {position}: no function {full!r}")

    def _call(self, node: Any, path: tuple[str, ...], tokens: Sequence[Token]) -> Call:
        function = self.known[path]
        assert function is not None, path
        index = next(i for i, token in enumerate(tokens) if token.start == node.meta["start"])
        first = index - 2 * (len(path) - 1)
        depth, arguments, begin = 0, [], index + 2
        for position in range(index + 1, len(tokens)):
            kind = tokens[position].token_type
            depth += (kind in text.OPENING) - (kind in text.CLOSING)
            if (depth == 0 or (depth == 1 and kind is TokenType.COMMA)) and position > begin:
                arguments.append(_argument(tokens[begin:position]))
            if depth == 1 and kind is TokenType.COMMA:
                begin = position + 1
            if depth == 0:
                return Call(node, function, tokens[first].start, tokens[position].end + 1, tuple(arguments))
        raise self._invalid(node, "expected a closing parenthesis")

    def _invalid(self, node: Any, message: str) -> InvalidInput:
        return self.piece.script.invalid(self.piece.origin(node.meta["start"]), message)

    def _unsupported(self, node: Any, message: str) -> UnsupportedFeature:
        return self.piece.script.unsupported(self.piece.origin(node.meta["start"]), message)

    def _replacement(self, call: Call, tree: Any) -> str:
        """The body with the arguments in place of the parameters."""
        function, name = call.function, call.function.name
        _require_sql(self, call)
        if name.casefold() in map(str.casefold, self.context.functions):
            raise self._invalid(call.node, f"function {name} calls itself, by {' and '.join(self.context.functions)}")
        spans = self._arguments_by_index(call)
        with self._named(call):
            body = body_of(self.context, function, self.references)
        bound = self._bound_arguments(call, tree, body)
        edits = list(body.edits)
        values = [
            self._value(call, parameter, spans.get(index), body, bound)
            for index, parameter in enumerate(function.parameters)
        ]
        for index, parameter in enumerate(function.parameters):
            uses = [use for use in body.uses if use.parameter == index]
            if (len(uses) > 1 or (uses and body.reads_tables)) and self._is_random(call, spans.get(index)):
                raise self._unsupported(
                    call.node,
                    f"function {name} would evaluate its argument {parameter.name} several times, and it is random; "
                    "compute it in a subquery first",
                )
            self._require_apart(call, spans.get(index), uses)
            edits += [(use.start, use.end, values[index]) for use in uses]
        script = text.Script(body.text, body.text, ())
        inside = replace(within(self.context, function), script=script, functions=(*self.context.functions, name))
        written = _edited(Piece(script, body.text, ((0, 0),)), edits)
        if len(written.text) > _MOST_CHARACTERS:
            raise self._unsupported(
                call.node, (
                    f"function {name}: over {_MOST_CHARACTERS} characters of text in all; "
                    "compute its arguments in a subquery first"
                )
            )  # fmt: skip
        inner = _Text(inside, written, self.references)
        with self._named(call):
            done = inner.inlined(text.parse(written, "body"), with_titles=False)
        value = done.text[body.head :] if body.head and function.returns is not None else f"({done.text[body.head :]})"
        return value if function.returns is None else f"CAST({value} AS {spark_type(function.returns.type)})"

    @contextmanager
    def _named(self, call: Call) -> Iterator[None]:
        """Add the call's place and the function's name to errors of its body."""
        try:
            yield
        except (InvalidInput, NotFound, UnsupportedFeature) as error:
            position = self.piece.script.position(self.piece.origin(call.node.meta["start"]))
            said = str(error).removeprefix(f"function {call.function.name}: ")
            raise type(error)(f"SQL at {position}: function {call.function.name}: {said}") from error

    def _arguments_by_index(self, call: Call) -> dict[int, tuple[int, int]]:
        """The arguments by the index of the parameter."""
        function, spans = call.function, dict[int, tuple[int, int]]()
        names = [parameter.name.casefold() for parameter in function.parameters]
        shown = f"{function.name}({', '.join(parameter.name for parameter in function.parameters)})"
        is_named = False
        for position, (name, start, end) in enumerate(call.arguments):
            is_named |= name is not None
            if name is None and is_named:
                raise self._invalid(call.node, f"{shown}: an argument without a name after one with a name")
            if name is not None and name.casefold() not in names:
                raise self._invalid(call.node, f"{shown} has no parameter {name!r}")
            index = position if name is None else names.index(name.casefold())
            if index >= len(names) or index in spans:
                message = (
                    "is given twice"
                    if index in spans
                    else f"takes {len(names)} arguments, and {len(call.arguments)} are given"
                )
                raise self._invalid(call.node, f"{shown}{'' if index >= len(names) else f': {name}'} {message}")
            spans[index] = (start, end)
        for index, parameter in enumerate(function.parameters):
            if index not in spans and parameter.default is None:
                raise self._invalid(
                    call.node, f"{shown} needs {parameter.name}; {len(call.arguments)} arguments are given"
                )
        if isinstance(call.node.parent, exp.Window | exp.Filter | exp.WithinGroup):
            raise self._invalid(call.node, f"{shown} is not an aggregate: OVER, FILTER and WITHIN GROUP do not apply")
        return spans

    def _bound_arguments(self, call: Call, tree: Any, body: Body) -> Mapping[int, str]:
        """The tables of the caller's unqualified columns, by their offset;
        needed where a body has tables of its own."""
        if not any(True for expression in call.node.expressions for _ in expression.find_all(exp.Column)):
            return {}
        with self._named(call):
            if not body.reads_tables and not calls_reader(within(self.context, call.function), body.tree):
                return {}
        return _bound(tree, self.references(self.context, self.piece, tree)) or {}

    def _value(
        self, call: Call, parameter: Field, span: tuple[int, int] | None, body: Body, bound: Mapping[int, str]
    ) -> str:
        """An argument's text, cast to the parameter's type."""
        value, type = self._argument(call, parameter, span, body, bound), spark_type(parameter.type)
        given = text.expression(Piece(text.Script(value, value, ()), value, ((0, 0),)))
        is_cast = isinstance(given, exp.Cast) and given.to.sql(dialect="spark") == type
        return value if is_cast else f"CAST({value} AS {type})"

    def _argument(
        self, call: Call, parameter: Field, span: tuple[int, int] | None, body: Body, bound: Mapping[int, str]
    ) -> str:
        """An argument's text; its columns are qualified if the body has tables of its own."""
        if span is None:
            script = text.read(str(parameter.default))
            piece = Piece.cut(script, script.tokens[0].start, script.tokens[-1].end + 1)
            if any(True for _ in text.expression(piece).find_all(exp.Column, exp.Query, exp.Placeholder)):
                raise self._invalid(
                    call.node, f"function {call.function.name}: the default of {parameter.name} is not a constant"
                )
            return piece.text
        start, end = span
        if not body.reads_tables and not bound:
            return self.piece.text[start:end]
        edits: list[Edit] = []
        if body.reads_tables and any(isinstance(above, exp.Lambda) for above in _above(call.node)):
            raise self._unsupported(
                call.node, f"function {call.function.name}, which reads tables, inside a lambda function"
            )
        for column in call.node.find_all(exp.Column):
            first = column.parts[0]
            offset = first.meta.get("start", -1)
            if not start <= offset < end or _has_query_between(column, call.node):
                continue
            table = bound.get(offset, "")
            if not body.reads_tables and not table:
                continue
            if not table and (len(column.parts) == 1 or offset in bound):
                raise self._invalid(
                    call.node,
                    f"function {call.function.name} reads tables, "
                    f"and it is not clear whose column {first.name!r} is: qualify it by its table",
                )
            if table:
                edits.append((offset, offset, f"{quoted(table)}."))
            if (table or first.name).casefold() in body.columns:
                raise self._invalid(
                    call.node, (
                        f"function {call.function.name} reads a table with a column {table or first.name!r}; "
                        "give your table another alias"
                    )
                )  # fmt: skip
        return _edited(self.piece.part(start, end), [(a - start, b - start, new) for a, b, new in edits]).text

    def _require_apart(self, call: Call, span: tuple[int, int] | None, uses: Sequence[Use]) -> None:
        """Refuse an argument with a column named as the variable of a lambda function around the parameter."""
        if span is None:
            return
        names = {
            node.name.casefold()
            for node in call.node.find_all(exp.Identifier)
            if span[0] <= node.meta.get("start", -1) < span[1]
        }
        for use in uses:
            if clash := sorted(names & use.lambdas):
                raise self._invalid(
                    call.node, (
                        f"function {call.function.name} has a variable {clash[0]!r} in a lambda function, "
                        "as an argument has; rename one"
                    )
                )  # fmt: skip

    def _is_random(self, call: Call, span: tuple[int, int] | None) -> bool:
        if span is None:
            return False
        script = text.Script(self.piece.text, self.piece.text, ())
        node = text.expression(Piece(script, self.piece.text[span[0] : span[1]], ((0, span[0]),)))
        return is_random(node)

    def _titles(self, calls: Sequence[Call]) -> Iterator[Edit]:
        """` AS name` behind each column of a select that has a call and no name."""
        for start, end in _selected(text.tokens(self.piece)):
            if not any(start <= call.start < end for call in calls):
                continue
            select = text.parse(Piece.join(self.piece.script, ["SELECT ", self.piece.part(start, end)]))
            item = parameters.marked(select).expressions[0]
            if (name := titled(item)) is not None:
                yield end, end, f" AS {quoted(name)}"


def calls_reader(context: Context, tree: Any, above: tuple[str, ...] = ()) -> bool:
    """Whether a body calls a function that reads tables, itself or by others. `context` is that of the body's names."""
    for node in tree.find_all(exp.Anonymous):
        path = _path(node)
        called = None if path is None or path[0].lower() in builtin.UNNAMED else find(context, path)
        if called is None or called.body is None or called.name in above:
            continue
        script = text.read(called.body)
        whole = Piece.cut(script, script.tokens[0].start, script.tokens[-1].end + 1)
        inner = text.parse(Piece.join(script, ["SELECT (", whole, "\n)"]))
        if any(query is not inner and not isinstance(query, exp.Subquery) for query in inner.find_all(exp.Query)):
            return True
        if calls_reader(within(context, called), inner, (*above, called.name)):
            return True
    return False


def is_random(tree: Any) -> bool:
    """Whether an expression's value is another one each time."""
    return any(
        isinstance(node, _RANDOM) or (isinstance(node, exp.Anonymous) and node.name.lower() in _RANDOMS)
        for node in tree.walk()
    )


def _require_sql(written: _Text, call: Call) -> None:
    function = call.function
    if function.body is not None:
        return
    definition = function.definition
    if definition is None:
        raise written._unsupported(
            call.node,
            f"function {function.name} has no definition for Spark; it has {', '.join(function.definitions) or 'none'}",
        )
    kind = "a Java class" if definition["type"] == "file" else f"a {definition.get('language', 'JAVA')} lambda"
    raise written._unsupported(
        call.node,
        f"function {function.name} is {kind}, and lakeformat runs no code of the JVM; write CREATE OR REPLACE FUNCTION "
        "with a SQL body, or register a function of yours in the Spark session under another name",
    )


def _path(node: Any) -> tuple[str, ...] | None:
    """The name of a called function; None for Iceberg's and Paimon's own."""
    owner: list[str] = []
    if isinstance(node.parent, exp.Dot) and node.parent.expression is node:
        before = node.parent.this
        owner = [part.name for part in (before.parts if isinstance(before, exp.Column | exp.Dot) else [before])]
    elif node.find_ancestor(exp.Hint) is not None:
        return None
    if "start" not in node.meta or any(not part for part in owner) or owner[-1:] in (["sys"], ["system"]):
        return None
    return (*owner, str(node.name))


def _argument(tokens: Sequence[Token]) -> tuple[str | None, int, int]:
    if len(tokens) > 2 and tokens[1].token_type is TokenType.FARROW:
        return tokens[0].text, tokens[2].start, tokens[-1].end + 1
    return None, tokens[0].start, tokens[-1].end + 1


def _is_within(inner: Call, outer: Call) -> bool:
    return inner is not outer and outer.start <= inner.start and inner.end <= outer.end


def _above(node: Any) -> Iterator[Any]:
    while node.parent is not None:
        node = node.parent
        yield node


def _has_query_between(node: Any, above: Any) -> bool:
    """Whether a subquery inside an argument has the column; it has tables of its own."""
    for ancestor in _above(node):
        if ancestor is above:
            return False
        if isinstance(ancestor, exp.Query):
            return True
    return False


def _bound(tree: Any, references: Sequence[Any]) -> dict[int, str] | None:
    """The table's alias of each column without one, by the offset of its name; "" where no table has it. None if the
    query cannot be analysed."""
    try:
        qualified = pushdown.qualified(tree, references)
    except (SqlglotError, KeyError, AttributeError, ValueError, IndexError, RecursionError):
        return None
    named = _aliases(tree)  # sqlglot gives a table function without an alias one of its own.
    return {
        column.this.meta["start"]: column.table if column.table.casefold() in named else ""
        for column in qualified.find_all(exp.Column)
        if "start" in column.this.meta
    }


def _aliases(tree: Any) -> dict[str, None]:
    """The names that qualify columns in a body: aliases, and names of tables without one, in lower case."""
    names: dict[str, None] = {}
    for node in tree.find_all(exp.TableAlias):
        if node.this is not None and not isinstance(node.parent, exp.CTE):
            names[node.this.name.casefold()] = None
    for node in tree.find_all(exp.Table):
        if not node.args.get("alias") and isinstance(node.this, exp.Identifier):
            names[node.name.casefold()] = None
    return names


def _renamed(context: Context, tree: Any, rename: Mapping[str, str], references: Sequence[Any]) -> Iterator[Edit]:
    """Edits that give a body's tables their full names, and aliases that no caller uses."""
    ends = {id(reference.node): reference.end for reference in references}
    for node in tree.find_all(exp.TableAlias):
        if node.this is not None and not isinstance(node.parent, exp.CTE) and "start" in node.this.meta:
            yield node.this.meta["start"], node.this.meta["end"] + 1, quoted(rename[node.this.name.casefold()])
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier | exp.Dot):
            continue
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        is_stored = id(node) in ends
        if is_stored and _is_of_database(context, parts):
            start = parts[0].meta["start"]
            yield start, start, "".join(f"{quoted(part)}." for part in context.session.database.split("."))
        if not node.args.get("alias") and isinstance(node.this, exp.Identifier):
            if node.args.get("sample"):
                raise InvalidInput(f"{node.name} TABLESAMPLE in a function's body: give the table an alias")
            end = ends.get(id(node), parts[-1].meta["end"] + 1)
            yield end, end, f" AS {quoted(rename[node.name.casefold()])}"
    for column in tree.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier | exp.Star)]
        for count in range(len(parts) - 1, 0, -1):
            last = parts[count - 1]
            if (
                "start" in parts[0].meta
                and last.name.casefold() in rename
                and (count == 1 or _is_table(tree, parts[:count]))
            ):
                yield parts[0].meta["start"], last.meta["end"] + 1, quoted(rename[last.name.casefold()])
                break


def _is_table(tree: Any, parts: Sequence[Any]) -> bool:
    """Whether `db.t` before a column is the name of a table in the body."""
    wanted = tuple(part.name.casefold() for part in parts)
    return any(
        tuple(part.name.casefold() for part in node.parts)[-len(wanted) :] == wanted
        for node in tree.find_all(exp.Table)
    )


def _is_of_database(context: Context, parts: Sequence[Any]) -> bool:
    """Whether a table's name in a body begins below the database."""
    first = parts[0].name
    if context.frames or context.session.temporary:  # A temporary function may name them.
        names = {
            *map(str.casefold, context.frames),
            *context.session.temporary,
            *map(str.casefold, context.session.views),
        }
        if ".".join(part.name for part in parts).casefold() in names:
            return False
    return len(parts) == 1 or not ({first} & {*context.databases, *context.session.catalogs})


def _uses(function: Function, tree: Any, bound: Mapping[int, str], tables: frozenset[str]) -> Iterator[Use]:
    """The columns of a body that are parameters: `x`, `f.x`, or `x.part`.
    A column of a table comes first, as in Spark."""
    names = {parameter.name.casefold(): index for index, parameter in enumerate(function.parameters)}
    function_name = function.name.rpartition(".")[2].casefold()
    for column in tree.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if not parts or "start" not in parts[0].meta:
            continue
        first, start = parts[0].name.casefold(), parts[0].meta["start"]
        is_own = len(parts) > 1 and first == function_name and parts[1].name.casefold() in names
        if (len(parts) > 1 and first in tables) or (bound.get(start) and not is_own):
            continue
        lambdas = frozenset(
            variable.name.casefold()
            for above in _above(column)
            if isinstance(above, exp.Lambda)
            for variable in above.expressions
        )
        if is_own:
            yield Use(start, parts[1].meta["end"] + 1, names[parts[1].name.casefold()], lambdas)
        elif first in names:
            yield Use(start, parts[0].meta["end"] + 1, names[first], lambdas)
        elif not bound:
            raise InvalidInput(
                f"function {function.name} has no parameter {parts[0].name!r}; it has "
                f"{', '.join(p.name for p in function.parameters) or 'none'}"
            )


def _require_plain(function: Function, tree: Any, head: str) -> None:
    """Refuse aggregates, windows and generators outside a subquery: a function is called row by row."""
    if not head:
        return
    for node in tree.expressions[0].find_all(*_OF_ROWS):
        if node.find_ancestor(exp.Query) is tree:
            raise UnsupportedFeature(
                f"function {function.name}: {node.sql_name().lower() if isinstance(node, exp.Func) else node.key}(...) "
                "of many rows in a body that is called row by row; write RETURN SELECT ... FROM a table"
            )


def _selected(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """(start, end) of each item of each select's list."""
    stack: list[tuple[int, int]] = []  # (depth, index of the item's first token) of the lists that are open
    depth = 0
    for index, token in enumerate(tokens):
        kind, word = token.token_type, token.text.upper()
        depth -= kind in text.CLOSING
        is_word = kind not in (TokenType.STRING, TokenType.IDENTIFIER)
        is_clause = is_word and word in _CLAUSES and tokens[index - 1].text.upper() not in ("DISTINCT", ".")
        if stack and (depth < stack[-1][0] or (depth == stack[-1][0] and (is_clause or kind is TokenType.COMMA))):
            begin = stack.pop()[1]
            if begin < index:
                yield tokens[begin].start, tokens[index - 1].end + 1
            if kind is TokenType.COMMA and depth >= 0:
                stack.append((depth, index + 1))
        if kind is TokenType.SELECT:
            skipped = index + 1
            while skipped < len(tokens) and tokens[skipped].token_type in (
                TokenType.DISTINCT,
                TokenType.ALL,
                TokenType.HINT,
            ):
                skipped += 1
            stack.append((depth, skipped))
        depth += kind in text.OPENING
    while stack:
        begin = stack.pop()[1]
        if begin < len(tokens):
            yield tokens[begin].start, tokens[-1].end + 1


def _edited(piece: Piece, edits: Sequence[Edit]) -> Piece:
    """A piece with parts of its text replaced."""
    if not edits:
        return piece
    parts: list[str | Piece] = []
    position = 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        assert start >= position, (piece.text, edits)
        parts += [piece.part(position, start), new]
        position = end
    return Piece.join(piece.script, [*parts, piece.part(position, len(piece.text))])
