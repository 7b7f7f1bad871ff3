"""A pool worker that measures Python source files. Tempool runs it, see pool.toml."""

from __future__ import annotations

from typing import Any

import tempool

from complexity import measure_file


@tempool.method
def measure(paths: list[str], top: int = 5) -> list[dict[str, Any]]:
    """Measures the files at paths and returns the result of complexity.measure_file for each, in order.

    top limits the most complex functions listed for each file.
    """
    call = tempool.context()
    results = []
    for path in paths:
        # check() also answers health probes during a long call, and raises if the call was cancelled.
        call.check()
        results.append(measure_file(path, top))
    return results


if __name__ == "__main__":
    tempool.run()
