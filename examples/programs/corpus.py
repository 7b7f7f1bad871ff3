"""Labelled samples: the source code of packages of Python's standard library, in pieces."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Iterator, Sequence

LABELS = ("asyncio", "email", "http", "multiprocessing", "unittest", "xml")
_LINES = 40  # per piece


def samples(part: str, labels: Sequence[str] = LABELS) -> Iterator[tuple[str, str]]:
    """Yields pairs of a package name and a piece of its source, in a fixed order. part is "train" or "test": files, sorted by name, belong
    to the two parts in turn, so the test samples are not in the training set."""
    every_other = {"train": 0, "test": 1}[part]
    for label in labels:
        spec = importlib.util.find_spec(label)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("%r is not a package of the standard library" % (label,))
        for file in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py"))[every_other::2]:
            lines = file.read_text(encoding="utf-8").splitlines()
            for begin in range(0, len(lines), _LINES):
                yield label, "\n".join(lines[begin:begin + _LINES])
