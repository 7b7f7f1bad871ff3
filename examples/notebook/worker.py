"""A notebook for each user: what a cell defines is there for the user's next one, and for nobody else's."""

import contextlib
import io
from typing import Any

import tempool

names: dict[str, Any] = {"__name__": "__main__"}


@tempool.method
def run(cell: str) -> dict[str, str]:
    """Returns what the cell prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(cell, names)
    except Exception as error:
        return {"output": printed.getvalue(), "error": "%s: %s" % (type(error).__name__, error)}
    return {"output": printed.getvalue()}


tempool.run()
