"""CREATE, DROP, DESCRIBE and SHOW of functions: a catalog's, and the session's temporary functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from lakeformat.codec.arrow import fields_from_arrow
from lakeformat.engines.choose import spark_engine
from lakeformat.errors import AlreadyExists, InvalidInput, NotFound, UnsupportedFeature
from lakeformat.expression.spark_sql import spark_type
from lakeformat.model.schema import NO_ID, Field
from lakeformat.sql import builtin, declare, inline, names, parameters, query, text
from lakeformat.sql.result import Result, listing, nothing
from lakeformat.sql.session import Context
from lakeformat.sql.text import Cursor, Piece
from lakeformat.warehouse.functions import NOT_KEPT, Function, of_sql

_CHARACTERISTICS = ("RETURN", "LANGUAGE", "COMMENT", "DETERMINISTIC", "NOT", "CONTAINS", "READS", "SQL")
_DESCRIBED = {"function_desc": pa.string()}


def create(context: Context, cursor: Cursor, is_replace: bool) -> Result:
    """`[TEMPORARY] FUNCTION [IF NOT EXISTS] name(parameters) [RETURNS type] RETURN body`, or
    `name AS 'class' USING JAR 'path'`, after CREATE [OR REPLACE]."""
    is_temporary = cursor.take("TEMPORARY") or cursor.take("TEMP")
    cursor.expect("FUNCTION")
    if_exists = "replace" if is_replace else "error"
    if cursor.take("IF NOT EXISTS"):
        if is_replace or is_temporary:
            cursor.fail("IF NOT EXISTS goes with CREATE FUNCTION, without OR REPLACE and TEMPORARY")
        if_exists = "ignore"
    offset = cursor.offset
    path = cursor.path()
    if is_temporary and len(path) > 1:
        raise context.script.invalid(
            offset, f"{'.'.join(path)}: a temporary function is in no database; write its last name only"
        )
    if not is_temporary and not context.lake.functions.are_kept:
        cursor.refuse(f"CREATE FUNCTION: {NOT_KEPT}; and so does the session: CREATE TEMPORARY FUNCTION", offset)
    if builtin.is_one(path[-1]):
        raise context.script.invalid(
            offset, f"{path[-1]} is a built-in function, which a call would mean; give the function another name"
        )
    name = path[-1] if is_temporary else names.full(context, path)
    if cursor.take("AS"):
        if is_temporary:
            cursor.refuse(
                "a temporary function of a Java class; lakeformat loads no classes: write its body in SQL, CREATE "
                "TEMPORARY FUNCTION f(x INT) RETURN ..., or register it in the Spark session (spark.udf) "
                "and pass spark=",
                offset,
            )
        function = _of_files(cursor, name)
    else:
        function = _of_sql(context, cursor, name, offset, is_temporary)
    if not is_temporary:
        if name.rpartition(".")[0] not in context.databases:
            raise context.script.invalid(offset, f"function {name}: there is no such database; CREATE DATABASE first")
        context.lake.functions.create(function, if_exists)
        return nothing()
    if if_exists == "error" and name.casefold() in context.session.functions:
        raise AlreadyExists(
            f"SQL at {context.script.position(offset)}: there is a temporary function {name} already; "
            "say CREATE OR REPLACE"
        )
    context.session.functions[name.casefold()] = function
    return nothing()


def drop(context: Context, cursor: Cursor) -> Result:
    """`[TEMPORARY] FUNCTION [IF EXISTS] name`, after DROP."""
    is_temporary = cursor.take("TEMPORARY") or cursor.take("TEMP")
    cursor.expect("FUNCTION")
    if_exists = cursor.take("IF EXISTS")
    offset = cursor.offset
    path = cursor.path()
    cursor.close()
    if is_temporary:
        if context.session.functions.pop(".".join(path).casefold(), None) is None and not if_exists:
            raise NotFound(f"SQL at {context.script.position(offset)}: no temporary function {'.'.join(path)!r}")
        return nothing()
    function = inline.find(_stored(context), path)
    if function is not None:
        context.lake.functions.drop(function.name)
    elif len(path) == 1 and path[0].casefold() in context.session.functions:
        raise context.script.invalid(offset, f"{path[0]} is a temporary function; say DROP TEMPORARY FUNCTION")
    elif not if_exists:
        _missing(context, path, offset)
    return nothing()


def describe(context: Context, cursor: Cursor) -> Result:
    """`FUNCTION [EXTENDED] name`, after DESCRIBE, in Spark's rows."""
    cursor.expect("FUNCTION")
    extended = bool(cursor.take("EXTENDED"))
    offset = cursor.offset
    path = cursor.path()
    cursor.close()
    function = inline.find(context, path)
    if function is None:
        if len(path) == 1 and builtin.is_one(path[0]):
            cursor.refuse(f"{path[0]} is a built-in function, described in Spark's own documentation", offset)
        _missing(context, path, offset)
    return listing(_DESCRIBED, [(line,) for line in _described(function, extended)])


def show(context: Context, cursor: Cursor) -> Result:
    """`[USER | SYSTEM | ALL] FUNCTIONS [IN db] [[LIKE] 'pattern']`, after SHOW:
    the catalog's by full name, and the session's."""
    offset = cursor.offset
    word = cursor.word()
    if cursor.take("SYSTEM") or cursor.take("ALL") or cursor.peek("FUNCTIONS"):
        cursor.refuse(
            f"SHOW {word if word == 'FUNCTIONS' else f'{word} FUNCTIONS'} lists the engine's own; "
            "write SHOW USER FUNCTIONS, or ask the Spark session",
            offset,
        )  # fmt: skip
    cursor.expect("USER")
    cursor.expect("FUNCTIONS")
    database = context.session.database
    if cursor.take("IN") or cursor.take("FROM"):
        path = cursor.path()
        database = ".".join(path[1:] if len(path) > 1 and path[0] in context.session.catalogs else path)
        if database not in context.databases:
            raise NotFound(f"SQL at {context.script.position(offset)}: no database {database!r}")
    shown = [(name, name.rpartition(".")[2]) for name in context.lake.functions.names(database)]
    shown += [(function.name, function.name) for function in context.session.functions.values()]
    chosen = set(cursor.like([last for _, last in shown]))
    return listing({"function": pa.string()}, [(name,) for name, last in sorted(shown) if last in chosen])


# --- private ----------------------------------------------------------------------------------------------------------


def _of_files(cursor: Cursor, name: str) -> Function:
    """A definition of a class in JAR files: stored for engines with a JVM, never loaded here."""
    resources: list[dict[str, str]] = []
    class_name = cursor.string()
    if cursor.take("USING"):
        while True:
            kind = cursor.word()
            if kind not in ("JAR", "FILE", "ARCHIVE"):
                cursor.fail("expected JAR, FILE or ARCHIVE")
            cursor.at += 1
            resources.append({"definition": kind.lower(), "uri": cursor.string()})
            if not cursor.take(","):
                break
    cursor.close()
    definition = {
        "type": "file",
        "fileResources": resources,
        "language": "JAVA",
        "className": class_name,
        "functionName": name.rpartition(".")[2],
    }
    return Function(name, definitions={"spark": definition})


def _of_sql(context: Context, cursor: Cursor, name: str, offset: int, is_temporary: bool) -> Function:
    parameters: list[Field] = []
    cursor.listed(lambda: parameters.append(_parameter(context, cursor)))
    folded = [field.name.casefold() for field in parameters]
    if len(set(folded)) < len(folded):
        raise context.script.invalid(offset, f"function {name} has two parameters of one name")
    optional = [field.default is not None for field in parameters]
    if optional != sorted(optional):
        raise context.script.invalid(offset, f"function {name}: parameters with DEFAULT come last")
    returns = None
    if cursor.take("RETURNS"):
        if cursor.peek("TABLE"):
            cursor.refuse(
                "RETURNS TABLE; neither connector stores functions that give tables: CREATE VIEW, or RETURNS a type"
            )
        returns = declare.type_(context, cursor, ends=_CHARACTERISTICS)
    comment, deterministic, says_no_tables = None, None, False
    while not cursor.take("RETURN"):
        if cursor.take("COMMENT"):
            comment = cursor.string()
        elif cursor.take("NOT DETERMINISTIC") or cursor.take("DETERMINISTIC"):
            deterministic = cursor.tokens[cursor.at - 2].text.upper() != "NOT"
        elif cursor.take("CONTAINS SQL"):
            says_no_tables = True
        elif not (cursor.take("READS SQL DATA") or cursor.take("LANGUAGE SQL")):
            cursor.fail(
                "expected RETURNS a type, COMMENT, [NOT] DETERMINISTIC, CONTAINS SQL, READS SQL DATA, "
                "LANGUAGE SQL or RETURN"
            )
    start = cursor.offset
    if cursor.done:
        cursor.fail("expected a body")
    body = cursor.rest()
    written = context.script.original[start : start + len(body.text)]
    function = Function(
        name,
        tuple(parameters),
        None if returns is None else Field(NO_ID, name.rpartition(".")[2], returns),
        {"spark": {"type": "sql", "definition": written}},
        session_namespace=context.session.database if is_temporary else None,
    )
    return _checked(context, function, offset, comment, deterministic, says_no_tables)


def _parameter(context: Context, cursor: Cursor) -> Field:
    """`x INT [DEFAULT value] [COMMENT 'text']`."""
    name = cursor.part()
    type = declare.type_(context, cursor)
    default = comment = None
    while not (cursor.done or cursor.peek(",") or cursor.peek(")")):
        if cursor.take("DEFAULT"):
            piece = cursor.until(",", ")", "COMMENT")
            query.constant(context, piece)
            start = piece.origin(0)
            default = context.script.original[start : start + len(piece.text)]
            if parameters.used(parameters.marked(text.expression(piece))):
                raise context.script.invalid(start, f"the default of {name} has parameters; write a constant")
        elif cursor.take("COMMENT"):
            comment = cursor.string()
        elif cursor.peek("NOT"):
            cursor.refuse(f"NOT NULL of the parameter {name}, which Spark does not know either")
        else:
            cursor.fail("expected DEFAULT, COMMENT, a comma or )")
    return Field(NO_ID, name, type, True, comment, default)


def _checked(
    context: Context,
    function: Function,
    offset: int,
    comment: str | None,
    deterministic: bool | None,
    says_no_tables: bool,
) -> Function:
    """The function with its result's type. Its body is resolved and typed as in a call with nulls."""
    of_body = replace(context, params={}, frames=context.frames if function.is_temporary else {})
    try:
        body = inline.body_of(replace(of_body, functions=(function.name,)), function, query.resolved)
        reads_tables = body.reads_tables or inline.calls_reader(inline.within(of_body, function), body.tree)
        result = _typed(of_body, function)
    except (InvalidInput, NotFound, UnsupportedFeature) as error:
        said = str(error).removeprefix(f"SQL at line 1, column 8: function {function.name}: ")
        said = said.removeprefix(f"function {function.name}: ")
        raise type(error)(f"SQL at {context.script.position(offset)}: function {function.name}: {said}") from error
    if says_no_tables and reads_tables:
        raise context.script.invalid(
            offset, f"function {function.name} CONTAINS SQL, but its body reads tables: READS SQL DATA"
        )
    names_ = [field.name.casefold() for field in function.parameters]
    if clash := sorted(body.aliases & set(names_)):
        raise context.script.invalid(
            offset, f"function {function.name}: {clash[0]!r} is a parameter and an alias in the body; rename one"
        )
    returns = function.returns or replace(result, id=NO_ID, name=function.name.rpartition(".")[2], nullable=True)
    random = inline.is_random(body.tree)
    stored = of_sql(
        function.name, function.parameters, returns, str(function.body), body.head == 0, reads_tables,
        not random if deterministic is None else deterministic, comment,
    )  # fmt: skip
    return replace(stored, session_namespace=function.session_namespace)


def _typed(context: Context, function: Function) -> Field:
    """The column that a call with nulls gives."""
    nulls = [f"CAST(NULL AS {spark_type(field.type)})" for field in function.parameters]
    written = f"SELECT `_checked`({', '.join(nulls)}) AS value"
    if context.spark is None and nulls:  # DuckDB forgets the type of some expressions over literal nulls.
        columns = ", ".join(f"{null} AS `_{index}`" for index, null in enumerate(nulls))
        given = ", ".join(f"_nulls.`_{index}`" for index in range(len(nulls)))
        written = f"SELECT `_checked`({given}) AS value FROM (SELECT {columns}) AS _nulls"
    script = text.read(written)
    session = replace(context.session, functions={**context.session.functions, "_checked": function})
    inside = replace(context, script=script, session=session)
    schema = query.schema(inside, Piece.cut(script, 0, len(script.text)))
    (field,) = fields_from_arrow(schema) if isinstance(schema, pa.Schema) else spark_engine.fields_from_spark(schema)
    return field


def _described(function: Function, extended: bool) -> list[str]:
    definition = function.definition
    if definition is not None and definition["type"] == "file":
        lines = [f"Function: {function.name}", f"Class: {definition.get('className')}", "Usage: N/A."]
        files = definition.get("fileResources") or ()
        return lines + [f"{str(file.get('definition')).upper()}: {file.get('uri')}" for file in files if extended]
    typed = [f"{field.name} {spark_type(field.type)}" for field in function.parameters]
    if extended:
        typed = [line + _details(field) for line, field in zip(typed, function.parameters, strict=True)]
    rows: list[tuple[str, Sequence[str]]] = [
        ("Function", [function.name]),
        ("Type", ["SCALAR"]),
        ("Input", typed or ["()"]),
        ("Returns", ["" if function.returns is None else spark_type(function.returns.type)]),
    ]
    if extended:
        rows += [("Comment", [function.comment])] if function.comment else []
        rows += [("Deterministic", [str(function.deterministic).lower()])]
        if function.body is not None:
            rows += [
                ("Data Access", ["READS SQL DATA" if function.reads_tables else "CONTAINS SQL"]),
                ("Body", [function.body]),
            ]
        elif definition is not None:
            rows += [("Language", [str(definition.get("language"))]), ("Body", [str(definition.get("definition"))])]
    width = max(len(key) for key, _ in rows) + 2
    return [
        (f"{key}:" if index == 0 else "").ljust(width) + line for key, lines in rows for index, line in enumerate(lines)
    ]


def _details(field: Field) -> str:
    comment = "" if field.comment is None else f" '{field.comment}'"
    return ("" if field.default is None else f" DEFAULT {field.default!s}") + comment


def _stored(context: Context) -> Context:
    """The context without temporary functions."""
    return replace(context, session=replace(context.session, functions={}))


def _missing(context: Context, path: tuple[str, ...], offset: int) -> NoReturn:
    raise NotFound(f"SQL at {context.script.position(offset)}: no function {names.full(context, path)!r}")
