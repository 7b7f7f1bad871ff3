"""Real text with labels: the source of packages of Python's standard library, in pieces."""

import importlib.util
from pathlib import Path

LABELS = ("asyncio", "email", "http", "multiprocessing", "unittest", "xml")
_LINES = 40  # of a piece


def samples(part, labels=LABELS):
    """Pairs of a package's name and a piece of its source, in a fixed order. part is "train" or "test": of every two files, in order of
    their names, one belongs to either, so that nothing is tried on what it was trained on."""
    every_other = {"train": 0, "test": 1}[part]
    for label in labels:
        spec = importlib.util.find_spec(label)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("%r is no package of the standard library" % (label,))
        for file in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py"))[every_other::2]:
            lines = file.read_text(encoding="utf-8").splitlines()
            for begin in range(0, len(lines), _LINES):
                yield label, "\n".join(lines[begin:begin + _LINES])
