"""A worker that writes more lines than a log takes."""
import sys

import tempool


@tempool.method
def flood(mebibytes):
    for _ in range(mebibytes << 10):
        sys.stderr.write("x" * 1023 + "\n")


tempool.run()
