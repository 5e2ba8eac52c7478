"""The peers' end: a request on each line of stdin, its answer on a line of stdout. Runs in the peer's environment."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def serve(verbs: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests, each a verb and its arguments, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Whatever the engine prints must not end up between the answers.
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("verb")
        try:
            answer = {"answer": verbs[verb](**request)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
