"""Runs Python code of strangers: a fresh process for each piece of code, without network."""

import contextlib
import io
import statistics  # noqa: F401  loaded once, in the template; so would be numpy or pandas

import tempool


@tempool.method
def run(code: str) -> dict[str, str]:
    """Returns what the code prints. The process, and whatever the code left in it, ends after this call."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "__main__"})
    except Exception as error:
        return {"output": printed.getvalue(), "error": "%s: %s" % (type(error).__name__, error)}
    return {"output": printed.getvalue()}


tempool.run()
