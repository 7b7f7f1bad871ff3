"""A pool worker that measures Python source files. Run by Tempool, see pool.toml next to it."""

import tempool

from complexity import measure_file


@tempool.method
def measure(paths, top=5):
    """Measures the files at paths and returns one object for each, in order; complexity.measure_file says what is in it.

    top is how many of each file's most complex functions are named.
    """
    call = tempool.context()
    results = []
    for path in paths:
        # A worker that looks up now and then answers health probes in the midst of a long call, and stops when nobody waits for it.
        call.check()
        results.append(measure_file(path, top))
    return results


if __name__ == "__main__":
    tempool.run()
