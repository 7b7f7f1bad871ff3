"""A worker that keeps what its clients say in its own memory, and in their sessions only when they leave it."""
import os
import time

import tempool

kept = {}
hooks = []


@tempool.method
def keep(value):
    """Keeps a value here alone. Tells which worker did."""
    kept[tempool.context().headers["tempool-session"]] = value
    return os.environ["TEMPOOL_WORKER"]


@tempool.method
def kept_here():
    """What this worker knows of the session without asking anybody."""
    return kept.get(tempool.context().headers["tempool-session"])


@tempool.method(name="hooks")
def ran():
    return {"hooks": hooks, "kept": sorted(kept)}


@tempool.on_session_release
def release(id):
    hooks.append("release " + id)
    if id in kept:
        tempool.context().session["kept"] = kept.pop(id)


@tempool.on_session_load
def load(id):
    hooks.append("load " + id)
    if id.startswith("slow") and os.environ["TEMPOOL_WORKER"].endswith("/1"):
        # The test ends this process while it is in here.
        with open(os.path.join(os.environ["WITNESS"], "loading.tmp"), "w") as f:
            f.write(str(os.getpid()))
        os.rename(f.name, f.name[:-4])
        time.sleep(3600)
    value = tempool.context().session.get("kept")
    if value is not None:
        kept[id] = value


tempool.run()
