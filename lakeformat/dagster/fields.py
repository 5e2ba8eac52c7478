"""A resource takes the fields that it has; pydantic would drop the others without a word."""

import difflib
from collections.abc import Iterable
from typing import Any

from lakeformat.errors import InvalidInput


def refuse_unknown(resource: Any, names: Iterable[str]) -> None:
    """Raise `InvalidInput` for a name that is no field of the class `resource`."""
    known = resource.model_fields
    if unknown := [name for name in names if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
        raise InvalidInput(f"{resource.__name__} has no field {unknown[0]!r}; {advice}")
