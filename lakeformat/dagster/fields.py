"""Resources and configurations refuse unknown fields, which pydantic would silently drop."""

import difflib
from typing import Any

from lakeformat.errors import InvalidInput


class KnownFields:
    """Mixed into a resource or configuration, raises `InvalidInput` for an unknown field. The message shows no values,
    which may be secrets."""

    def __init__(self, **fields: Any) -> None:
        known: Any = getattr(type(self), "model_fields")  # noqa: B009  mypy does not know the class attribute.
        if unknown := [name for name in fields if name not in known]:
            near = difflib.get_close_matches(unknown[0], known, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise InvalidInput(f"{type(self).__name__} has no field {unknown[0]!r}; {advice}")
        super().__init__(**fields)
