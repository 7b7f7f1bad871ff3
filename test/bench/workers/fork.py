"""Prints the median of the milliseconds from a fork until the child has written a byte, with so many megabytes."""
import gc
import os
import statistics
import sys
import time

ballast = b"\1" * (int(sys.argv[1]) << 20)
gc.freeze()


def fork():
    began = time.monotonic()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"x")
        os._exit(0)
    os.read(read, 1)
    took = time.monotonic() - began
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    return 1000 * took


print(statistics.median(fork() for _ in range(30)))
