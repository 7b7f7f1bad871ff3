"""Frees memory when the host asks for it."""

from __future__ import annotations

import gc

METHOD = b"tempool.gc"  # a notification; a method of this name in the program replaces it


def collected(name: bytes) -> bool:
    """Runs the garbage collector if name is METHOD, and returns whether it is."""
    if name != METHOD:
        return False
    gc.collect()
    import ctypes  # a slow import, so not at startup

    try:
        ctypes.CDLL(None).malloc_trim(0)  # returns freed memory to the system; glibc only
    except (AttributeError, OSError, TypeError):
        pass
    return True
