"""The fields of resources and configurations: unknown ones are refused, and a launchpad is valid as it opens."""

import difflib
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import dagster as dg
from pydantic import ValidationError

from lakeformat.dagster.internals import partial_schema, resource_schema, set_partial_schema, set_resource_schema
from lakeformat.errors import InvalidInput


class KnownFields:
    """Mixed into a resource or configuration, raises `InvalidInput` for an unknown field, which pydantic would drop,
    and for a value that its field does not take. The message shows no text, which may be a secret."""

    def __init__(self, **fields: Any) -> None:
        model_fields: Any = getattr(type(self), "model_fields")  # noqa: B009  mypy does not know the class attribute.
        if unknown := [name for name in fields if name not in model_fields]:
            near = difflib.get_close_matches(unknown[0], model_fields, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(model_fields)}"
            raise InvalidInput(f"{type(self).__name__} has no field {unknown[0]!r}; {advice}")
        fields = {name: fspath(value) if isinstance(value, PathLike) else value for name, value in fields.items()}
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InvalidInput(f"{type(self).__name__}: {_first(error, fields)}") from None


class LaunchableFields(KnownFields):
    """Mixed into a resource: a run's configuration may change any of its fields, and fields that it does not name keep
    the values of the code. A launchpad shows these values, except those of secret fields, which are in no schema."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        # Dagster's own schema has the values of the code as one default. A launchpad replaces the secrets in it by
        # stars, which are no valid value, and a configuration of some fields resets the others.
        set_resource_schema(self, launch_schema(*resource_schema(self)))

    @classmethod
    def configure_at_launch(cls, **fields: Any) -> Any:
        """The resource with some of its fields; a run's configuration gives the others."""
        partial = super().configure_at_launch(**fields)  # type: ignore[misc]  # Of the resource class beside it.
        set_partial_schema(partial, launch_schema(partial_schema(partial), {}))
        return partial


def _first(error: ValidationError, fields: Mapping[str, Any]) -> str:
    """What is wrong with the first value that pydantic refuses."""
    first = error.errors()[0]
    name, *inner = first["loc"] or ("fields",)
    if inner and isinstance(fields.get(str(name)), Mapping):  # Else pydantic names a choice of the field's types.
        name = f"{name}[{inner[0]!r}]"
    reason = first.get("ctx", {}).get("error", first["msg"])
    if isinstance(reason, Exception):
        return f"{name}: {reason}"
    value = first.get("input")
    shown = repr(value) if isinstance(value, int | float) or value is None else type(value).__name__
    if name not in fields and not inner:
        shown = "nothing"
    return f"{name} is {shown}; {reason[:1].lower()}{reason[1:]}"


def launch_schema(schema: dg.Field, values: Mapping[str, Any]) -> dg.Field:
    """The configuration schema of a resource whose fields have `values` in the code. These are defaults, except for
    secret fields: such a field is optional if it has a value, which a run keeps unless it gives another."""
    fields: dict[str, dg.Field] = {}
    for name, field in schema.config_type.fields.items():
        required = field.is_required and name not in values
        if field.is_secret:
            default = {}
        elif name in values:
            default = {"default_value": values[name]}
        else:
            default = {"default_value": field.default_value} if field.default_provided else {}
        fields[name] = dg.Field(
            field.config_type,
            is_required=required,
            description=field.description,
            is_secret=field.is_secret,
            **default,
        )
    return dg.Field(dg.Shape(fields), description=schema.description)


def resolved(value: Any) -> Any:
    """A field's value with the values of its environment variables. Raises `InvalidInput` for a variable that is not
    set."""
    if isinstance(value, dg.EnvVar):
        text = value.get_value()
        if text is None:
            raise InvalidInput(f"the environment variable {value.env_var_name} is not set")
        return text
    if isinstance(value, Mapping):
        return {key: resolved(inner) for key, inner in value.items()}
    return [resolved(inner) for inner in value] if isinstance(value, list) else value


def require(argument: str, value: Any, kind: type | tuple[type, ...], form: str) -> None:
    """Raise `InvalidInput` for an argument that is not of `kind`; `form` says what to give. The message shows no value,
    which may be a secret."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{argument} is {type(value).__name__}; give {form}")
