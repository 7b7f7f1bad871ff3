"""What every worker does when its host is short of memory and says so."""

import gc

METHOD = b"tempool.gc"  # a notification; a method of this name that the program defines is called instead


def collected(name):
    """Collects garbage if the notification asks for that, and says whether it does."""
    if name != METHOD:
        return False
    gc.collect()
    import ctypes  # here, since it takes longer to load than a worker may want to wait for

    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory; other libraries have no such function
    except (AttributeError, OSError, TypeError):
        pass
    return True
