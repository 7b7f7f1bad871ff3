"""A worker that echoes, holds its caller, and leaks or dies on request."""
import os
import sys
import time

import tempool


@tempool.method
def echo(text):
    print("echo", text, file=sys.stderr, flush=True)
    return {"text": text}


@tempool.method
def hold(seconds):
    time.sleep(seconds)


kept = []


@tempool.method
def leak(mib):
    kept.append(bytearray(mib << 20))


@tempool.method
def die():
    print("the model file is corrupt: cannot continue", file=sys.stderr, flush=True)
    os._exit(3)


tempool.run()
