"""A worker that keeps values in memory and writes them to their session only when the session moves away."""
import os
import time

import tempool

kept = {}
hooks = []


@tempool.method
def keep(value):
    """Keep a value in memory only, and return the name of the worker."""
    kept[tempool.context().headers["tempool-session"]] = value
    return os.environ["TEMPOOL_WORKER"]


@tempool.method
def kept_here():
    """Return the value that this worker has in memory for the session."""
    return kept.get(tempool.context().headers["tempool-session"])


@tempool.method
def value():
    """Return the value of the session, from memory or, once it was released, from the session."""
    id = tempool.context().headers["tempool-session"]
    return [kept.get(id) or tempool.context().session.get("kept"), os.environ["TEMPOOL_WORKER"], tempool.context().incarnation]


@tempool.method(name="hooks")
def ran():
    return {"hooks": hooks, "kept": sorted(kept)}


@tempool.on_session_release
def release(id):
    hooks.append("release " + id)
    time.sleep(float(os.environ.get("RELEASE_TAKES", "0")))
    if id in kept:
        tempool.context().session["kept"] = kept.pop(id)


@tempool.on_session_load
def load(id):
    hooks.append("load " + id)
    if id.startswith("slow") and os.environ["TEMPOOL_WORKER"].endswith("/1"):
        # The test kills this process while it sleeps below.
        with open(os.path.join(os.environ["MARKERS"], "loading.tmp"), "w") as f:
            f.write(str(os.getpid()))
        os.rename(f.name, f.name[:-4])
        time.sleep(3600)
    value = tempool.context().session.get("kept")
    if value is not None:
        kept[id] = value


tempool.run()
