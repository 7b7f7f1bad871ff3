"""A worker whose method perform does what a vector of sdk/vectors/hostcalls.json says."""

import tempool


def increment(n):
    return (n or 0) + 1


@tempool.method
def perform(do, *args):
    call = tempool.context()
    session = call.session
    parts = {"data": session, "metadata": session.metadata}
    part, _, verb = do.partition(".")
    if part == "programs":
        return getattr(call.programs, verb)(*args)
    if part in parts:
        entries = parts[part]
        if verb == "set":
            entries[args[0]] = args[1]
            return None
        if verb == "increment":
            return entries.change(args[0], increment)
        return getattr(entries, verb)(*args)
    return getattr(session, {"end": "delete"}.get(do, do))(*args)


tempool.run()
