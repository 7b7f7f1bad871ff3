"""A worker that echoes, leaks, and dies on request."""
import os
import sys

import tempool


@tempool.method
def echo(text):
    print("echo", text, file=sys.stderr, flush=True)
    return {"text": text}


kept = []


@tempool.method
def leak(mib):
    kept.append(bytearray(mib << 20))


@tempool.method
def die():
    print("the model file is corrupt: cannot continue", file=sys.stderr, flush=True)
    os._exit(3)


tempool.run()
