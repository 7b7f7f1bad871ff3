"""Trains a classifier on one worker of the pool "programs" and runs it on all others.

    PYTHONPATH=sdk/python python3 examples/programs/client.py [ENDPOINT]
"""

from __future__ import annotations

import sys
import time
import uuid
from contextlib import ExitStack

from tempool.client import Client

import corpus

PROGRAM = "which-package"


def main(endpoint: str | None = None) -> None:
    labels, texts = zip(*corpus.samples("test"))
    with Client(endpoint) as client, ExitStack() as leases:
        pool = client.pool("programs")
        session = "programs-" + uuid.uuid4().hex
        # Simultaneous leases are on different workers.
        author, *others = [leases.enter_context(pool.lease(holder="examples/programs", session=session)) for _ in range(pool.status()["size"])]
        began = time.monotonic()
        trained = author.call("train", {"id": PROGRAM}, timeout=60)
        print("%s trained a program of %d words on %d pieces of code, in %.1f s." % (
            author.worker, trained["words"], trained["samples"], time.monotonic() - began))
        for lease in others:
            began = time.monotonic()
            found = lease.call("classify", {"id": PROGRAM, "texts": texts}, timeout=60)
            right = sum(a == b for a, b in zip(found, labels))
            print("%s ran it on %d pieces it was not trained on: %.1f %% right, %.1f s." % (
                lease.worker, len(texts), 100 * right / len(texts), time.monotonic() - began))
        data = pool.sessions.get(session)["data"]
        print("The session says: trained by %s, %d pieces classified." % (data["trained"]["by"], data["classified"]))
        pool.sessions.delete(session)


if __name__ == "__main__":
    main(*sys.argv[1:2])
